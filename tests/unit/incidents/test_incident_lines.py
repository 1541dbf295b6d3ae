"""An incident with its evidence: each query returns the rows that its statement counts."""

from isr_batch.incidents.incident_lines import incident_lines
from isr_batch.incidents.listing import chosen_incidents, listed_incidents
from isr_batch.incidents.own_shrinks import OwnShrinks
from isr_batch.lake.arrow_sql import ArrowSql
from tests.own_shrinks_log import KEY, Log, at, leader_was_silent


def rows_of(own: OwnShrinks, line: str) -> int:
    with ArrowSql() as sql:
        tables = {name: rows for name, rows in own.tables.items() if f" {name} " in line}
        return len(sql(line.replace("SELECT *", "SELECT 1 AS one"), **tables).to_pylist())


def test_each_statement_has_its_lines_and_its_query() -> None:
    log = Log()
    leader_was_silent(log)
    log.shrink(16.5, 1, 3, None, partition=2)
    log.add("shrink_evidence", cluster_id="c", topic="t", partition_id=2, leader_id=1, replica_id=3,
            change_time=at(16.5), suspect="leader", suspect_broker=1)  # fmt: skip
    log.add("observed_isr_changes", **KEY, leader_id=2, replica_id=1, change_time=at(17), kind="shrink",
            made_by="controller", last_caught_up_time_ms=None, source_file=None, source_line=None)  # fmt: skip
    log.add("broker_events", cluster_id="c", broker_id=1, kind="fenced", event_time=at(17), end_time=at(17))
    own = log.found()
    (incident,) = own.incidents
    lines = incident_lines(own, incident)
    assert [line for line in lines if "SELECT" not in line] == [
        "2026-01-01 00:00:10 to 00:00:17: broker 1",
        "  was silent for 6 s",
        "  broker 2 dropped broker 1 from 1 ISR",
        "    broker-2/server.log line 100",
        "  broker 1 dropped 4 healthy followers (brokers 2 and 3)",
        "    broker-1/server.log lines 101, 102, 103, 104",
        "  was fenced after its heartbeats stopped",
        "  was removed from 1 ISR by the controller",
        "  1 drop cannot be judged, and server.log points at broker 1",
        "    broker-1/server.log line 105",
    ]
    queries = [line for line in lines if "SELECT *" in line]
    (around,) = (line for line in lines if " FROM fetches " in line)
    assert "leader_id = 1 AND event_date BETWEEN DATE '2026-01-01' AND DATE '2026-01-01' AND completed_time" in around
    assert [rows_of(own, query) for query in queries] == [1, 1, 4, 1, 1, 6]


def test_many_lines_are_counted_and_inferred_drops_have_none() -> None:
    log = Log()
    for partition in range(6):
        log.shrink(20, 2, 3, "genuine", "follower_stopped", partition=partition)
    log.shrink(60, 2, 3, None)
    own = log.found()
    told, unknown = (incident_lines(own, one) for one in own.incidents)
    assert "    broker-2/server.log lines 100, 101, 102, 103 and 2 more" in told
    assert unknown[:2] == [
        "2026-01-01 00:01:00: 1 follower left an ISR; the logs do not say why.", "    broker-2/server.log line 106"
    ]  # fmt: skip
    assert listed_incidents(own, chosen_incidents(own, broker=3), "LAKE", whole=True)[: len(told)] == told


def test_a_lake_without_terms_has_nothing_to_tell() -> None:
    log = Log()
    log.rows["leader_epochs"] = []
    assert listed_incidents(log.found(), [], "LAKE") == [
        "This lake has no terms of leaders, so there is nothing to report."
    ]
