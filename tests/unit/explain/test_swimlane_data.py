from isr_batch.explain.swimlane_data import unlogged


def test_what_is_before_and_after_the_log_of_a_term() -> None:
    term = {"start_us": 100, "end_us": 900, "begins_mid_term": True, "ends_mid_term": True}
    assert unlogged(term, (50, 950)) == ((50, 100), (900, 950))
    assert unlogged(term, (200, 800)) == ()
    assert unlogged(term | {"begins_mid_term": False}, (50, 950)) == ((900, 950),)
    assert unlogged(term | {"ends_mid_term": False}, (50, 950)) == ((50, 100),)
