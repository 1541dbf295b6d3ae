"""Layers, hash, and all mistakes reported at once with their location."""

from pathlib import Path

import pytest
import yaml

from isr_batch.errors import UsageError
from isr_batch.rule_names import parse_rule_params
from isr_batch.session import shuffle_options
from isr_batch.settings import Settings, SparkSettings, load_settings
from isr_batch.window import Window, parse_window


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ISR_BATCH_ENV", "ISR_BATCH__SPARK__MASTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text("spark: {master: from-base, driver_memory: 3g, shuffle_partitions: 3}\n")
    (tmp_path / "prod.yaml").write_text("spark: {driver_memory: 4g, shuffle_partitions: 4}\n")
    return tmp_path


def test_later_layers_win(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_BATCH__SPARK__SHUFFLE_PARTITIONS", "5")
    monkeypatch.setenv("ISR_BATCH__INGEST__MAX_QUARANTINE_RATIO", "0.5")
    settings = load_settings("prod", {"ingest": {"max_quarantine_ratio": 0.25}}, conf)
    spark = settings.spark
    assert (spark.master, spark.driver_memory, spark.shuffle_partitions) == ("from-base", "4g", 5)
    assert spark.arrow_batch_rows == Settings().spark.arrow_batch_rows
    assert settings.ingest.max_quarantine_ratio == 0.25


def test_yaml_reads_on_and_off_as_truth_values(conf: Path) -> None:
    for said in ("on", "off", "auto"):
        (conf / "base.yaml").write_text(f"replay: {{elr: {said}}}\n")
        assert load_settings(conf=conf).replay.elr == said


def test_environment_can_be_a_variable(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_BATCH_ENV", "prod")
    assert load_settings(conf=conf).spark.driver_memory == "4g"


def test_base_yaml_lists_every_key_with_its_default() -> None:
    base = Path(__file__).parents[2] / "conf" / "base.yaml"
    assert yaml.safe_load(base.read_text()) == Settings().model_dump()


def test_conf_is_found_in_the_working_folder(tmp_path: Path, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "conf").symlink_to(conf)
    monkeypatch.chdir(tmp_path / "project")
    assert load_settings().spark.master == "from-base"


def test_all_mistakes_at_once_each_with_its_place(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (conf / "base.yaml").write_text("spark: {drivermemory: 3g}\ningst: {}\nreplay: {rules: [kafka-3.7]}\n")
    monkeypatch.setenv("ISR_BATCH__SPARK__SHUFFLE_PARTITIONS", "many")
    monkeypatch.setenv("ISR_BATCH__SPRAK__MASTER", "local")
    with pytest.raises(UsageError) as raised:
        load_settings("prd", {"validation": {"min_matched_ratio": 2}}, conf)
    lines = raised.value.message.splitlines()
    assert lines[0] == "6 mistakes in the settings:"
    for fragments in (
        ("environment prd", "did you mean prod?"),
        ("base.yaml: spark.drivermemory: no such key", "did you mean driver_memory?"),
        ("base.yaml: ingst: no such key", "did you mean ingest?"),
        ("variables: spark.shuffle_partitions", "valid integer", "'many'"),
        ("variables: ISR_BATCH__SPRAK__MASTER: no such section", "did you mean ISR_BATCH__SPARK?"),
        ("options: validation.min_matched_ratio", "less than or equal to 1"),
    ):
        assert any(all(fragment in line for fragment in fragments) for line in lines), fragments


def test_rules_and_parameters_must_exist(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_BATCH__REPLAY__RULES", "kafka-3.7, true-leg")
    options = {
        "replay": {"params": parse_rule_params(["kafka-3.7.replica_lag_time_ms=1", "kafka-37.min_insync_replicas=1"])}
    }
    with pytest.raises(UsageError) as raised:
        load_settings(options=options, conf=conf)
    assert "variables: replay.rules: no rule true-leg; did you mean true-lag?" in raised.value.message
    assert "options: replay.params.kafka-3.7: no parameter replica_lag_time_ms" in raised.value.message
    assert "did you mean replica_lag_time_max_ms?" in raised.value.message
    assert "options: replay.params: no rule kafka-37; did you mean kafka-3.7?" in raised.value.message


@pytest.mark.parametrize(("text", "told"), [("a: [", "not YAML"), ("- a", "not a list")])
def test_broken_file_is_reported_with_the_rest(conf: Path, text: str, told: str) -> None:
    (conf / "base.yaml").write_text(text)
    with pytest.raises(UsageError, match=f"(?s)base.yaml.*{told}.*spark.master"):
        load_settings(options={"spark": {"master": 1}}, conf=conf)


def test_empty_file_sets_nothing(conf: Path) -> None:
    (conf / "base.yaml").write_text("# nothing yet\n")
    assert load_settings(conf=conf) == Settings()


def test_hash_is_of_values_not_of_layers(conf: Path) -> None:
    first = load_settings(options={"spark": {"driver_memory": "4g", "shuffle_partitions": 4}}, conf=conf)
    assert first.hash == load_settings("prod", conf=conf).hash
    assert first.hash != load_settings(conf=conf).hash


def test_params_take_names_with_dots() -> None:
    told = parse_rule_params(["kafka-0.10.2.replica.lag.time.max.ms=10000", "kafka-0.10.2.check_phase_ms=-1"])
    assert load_settings(options={"replay": {"params": told}}).replay.params == {
        "kafka-0.10.2": {"replica_lag_time_max_ms": 10_000, "check_phase_ms": -1}
    }


def test_params_may_be_choices(conf: Path) -> None:
    (conf / "dev.yaml").write_text(
        "replay:\n  params:\n    kip-501-relinquish: {pending-from: arrival, count-long-poll: true}\n"
    )
    assert load_settings("dev", conf=conf).replay.params == {
        "kip-501-relinquish": {"pending_from": 1, "count_long_poll": 1}
    }


def test_wrong_values_of_params_are_reported_together() -> None:
    told = [
        "kip-501-pending.pending_from=queue",
        "kafka-2.7.check_period_ms=soon",
        "kafka-3.7.check_period_ms=0",
        "true-lag.replica_lag_time_max_ms=0",
    ]
    with pytest.raises(UsageError) as raised:
        load_settings(options={"replay": {"params": parse_rule_params(told)}})
    assert "kip-501-pending.pending_from: handled or arrival is wanted, not 'queue'" in raised.value.message
    assert "kafka-2.7.check_period_ms: a whole number from 1 on is wanted, not 'soon'" in raised.value.message
    assert "kafka-3.7.check_period_ms: a whole number from 1 on is wanted, not '0'" in raised.value.message
    assert "true-lag.replica_lag_time_max_ms: a whole number from 1 on is wanted, not '0'" in raised.value.message


@pytest.mark.parametrize("text", ["replica_lag_time_max_ms=1", "kafka-3.7.x", "kafka-3.7.x=", ".x=1"])
def test_params_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="takes RULE"):
        parse_rule_params(["kafka-3.7.a=1", text])


@pytest.mark.parametrize(
    ("options", "window", "condition"),
    [
        ((None, None, None), Window(), "true"),
        (
            ("2026-01-31", None, None),
            Window("2026-01-31", "2026-02-01"),
            "event_date >= DATE'2026-01-31' AND event_date < DATE'2026-02-01'",
        ),
        ((None, "2026-01-31", None), Window("2026-01-31"), "event_date >= DATE'2026-01-31'"),
        ((None, None, "2026-01-31"), Window(None, "2026-01-31"), "event_date < DATE'2026-01-31'"),
    ],
)
def test_window(options: tuple[str | None, str | None, str | None], window: Window, condition: str) -> None:
    assert parse_window(*options) == window
    assert window.condition == condition


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("2026-01-31", "2026-01-01", None), "--date, or --from and --to"),
        (("31.1.2026", None, None), "write it as"),
        ((None, "2026-01-02", "2026-01-02"), "exclusive"),
    ],
)
def test_impossible_windows_are_refused(options: tuple[str | None, str | None, str | None], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_window(*options)
    assert told in raised.value.hint


@pytest.mark.parametrize(
    ("master", "given", "partitions"),
    [
        ("local", None, "8"), ("local[1]", None, "8"), ("local[8]", None, "32"), ("local[4,2]", None, "16"),
        ("local[*]", None, "64"), ("local[8]", 5, "5"), ("spark://host:1", 5, "5"), ("spark://host:1", None, "8"),
    ],
)  # fmt: skip
def test_tasks_of_an_exchange(master: str, given: int | None, partitions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four for each core; of a cluster the cores are not known."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    found = shuffle_options(SparkSettings(master=master, shuffle_partitions=given))
    assert found == {"spark.sql.shuffle.partitions": partitions}
