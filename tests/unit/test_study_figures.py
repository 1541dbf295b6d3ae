"""Names of the runs in the study: a rule whose code changed within its releases has two."""

from docs.generate.study_figures import LATER, releases_of_run, rule_of_run, run_of_rule
from udfs.rules import ALL_RULES, REGISTRY


def test_both_rows_of_a_rule_cover_its_releases() -> None:
    for rule, (param, first, later) in LATER.items():
        assert f"{first.split(' - ')[0]} - {later.split(' - ')[-1]}" == REGISTRY[rule].in_force
        assert REGISTRY[rule].params[param].says == f"true: {later.replace(' - ', ' to ')}"


def test_a_run_is_named_by_its_parameter() -> None:
    old, new = (
        run_of_rule({"rule": "kafka-2.7", "params_json": f'{{"advances_on_commit": "{value}"}}'})
        for value in ("false", "true")
    )
    assert (old, new) == ("kafka-2.7", "kafka-2.7 as of 3.1.0")
    assert (releases_of_run(old), releases_of_run(new)) == ("2.7.0 - 3.0.2", "3.1.0 - 3.2.3")
    assert rule_of_run(new) is REGISTRY["kafka-2.7"]
    assert [releases_of_run(run) for run in ALL_RULES if REGISTRY[run].kind != "released"] == [""] * 15
