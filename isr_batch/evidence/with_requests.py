"""What request logs add to the lines of server.log: the replay's verdicts, and who wrote when a replica was lost."""

from typing import Any

from isr_batch.evidence.questions import Answered, FromRequests, questions
from isr_batch.evidence.write import read_evidence
from isr_batch.lake.ddl import literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE
from isr_batch.lake.tables.inputs import APPEND_LOG
from isr_batch.lake.tables.outputs import REPLAY_CHECK, REPLICA_TIMELINE, SHRINK_VERDICTS

_VERDICTS = """
SELECT known_by, verdict, primary_cause, lag_ms, true_lag_ms, avoiding_lag_time_ms
FROM evidence_and_verdicts
WHERE cluster_id = {cluster} AND verdict <> 'excluded'
"""
# A time without a begin is a lag time long. Appends of clients that no logged request made are those of nobody.
_CLIENTS = """
WITH dropped AS (
  SELECT topic, partition_id, change_time, min(coalesce(
    timestamp_millis(last_caught_up_time_ms),
    timestampadd(MILLISECOND, -coalesce(replica_lag_time_max_ms, 10000), change_time)
  )) AS since
  FROM shrink_evidence
  WHERE cluster_id = {cluster} AND made_by = 'leader' AND NOT retry
  GROUP BY topic, partition_id, change_time
), written AS (
  SELECT
    client_id, topic, partition_id, append_time, base_offset, source_file, source_line,
    any_value(coalesce(log_end_offset - base_offset, 0)) AS records, collect_set(change_time) AS drops
  FROM append_log JOIN dropped USING (topic, partition_id)
  WHERE cluster_id = {cluster} AND append_time BETWEEN since AND change_time
  GROUP BY client_id, topic, partition_id, append_time, base_offset, source_file, source_line
)
SELECT
  client_id, topic, count(*) AS appends, sum(records) AS records,
  size(array_distinct(flatten(collect_list(transform(drops, at -> struct(partition_id, at)))))) AS drops,
  min(struct(append_time, source_file, source_line)) AS first
FROM written
GROUP BY client_id, topic
ORDER BY records DESC, appends DESC, topic, client_id
"""


def ask(lake: Lake, cluster_id: str) -> list[Answered]:
    """Answer every question about a cluster's shrinks from all that the lake has: lines, and request logs.

    Parameters
    ----------
    lake : Lake
    cluster_id : str

    Returns
    -------
    list of Answered
        As `isr_batch.evidence.questions.questions`; empty where no replica left an ISR by the lines.
    """
    if not lake.has(SHRINK_EVIDENCE.name):
        return []
    return questions(read_evidence(lake, cluster_id), from_requests(lake, cluster_id))


def from_requests(lake: Lake, cluster_id: str) -> FromRequests:
    """Collect what only request logs tell; what the lake does not have is empty.

    Parameters
    ----------
    lake : Lake
        With table shrink_evidence.
    cluster_id : str
    """
    replayed = all(lake.has(table.name) for table in (SHRINK_VERDICTS, REPLAY_CHECK, REPLICA_TIMELINE))
    return FromRequests(
        _rows(lake, _VERDICTS, cluster_id) if replayed else [],
        _rows(lake, _CLIENTS, cluster_id) if lake.has(APPEND_LOG.name) else [],
    )


def _rows(lake: Lake, query: str, cluster_id: str) -> list[dict[str, Any]]:
    rows, _ = lake.query(query.format(cluster=literal(cluster_id)))
    return rows
