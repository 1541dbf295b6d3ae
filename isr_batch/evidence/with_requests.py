"""What request logs add to the lines of server.log: the replay's verdicts, and who wrote when a replica was lost."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from isr_batch.evidence.questions import Answered, FromRequests, questions
from isr_batch.evidence.write import read_evidence
from isr_batch.lake.ddl import literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE
from isr_batch.lake.tables.inputs import APPEND_LOG
from isr_batch.lake.tables.outputs import REPLAY_CHECK, REPLICA_TIMELINE, SHRINK_VERDICTS

_VERDICTS = """
SELECT cluster_id, known_by, verdict, primary_cause, lag_ms, true_lag_ms, avoiding_lag_time_ms
FROM evidence_and_verdicts
WHERE cluster_id IN ({clusters}) AND verdict <> 'excluded'
"""
# A time without a begin is a lag time long. Appends of clients that no logged request made are those of nobody.
_CLIENTS = """
WITH dropped AS (
  SELECT cluster_id, topic, partition_id, change_time, min(coalesce(
    timestamp_millis(last_caught_up_time_ms),
    timestampadd(MILLISECOND, -coalesce(replica_lag_time_max_ms, 10000), change_time)
  )) AS since
  FROM shrink_evidence
  WHERE cluster_id IN ({clusters}) AND made_by = 'leader' AND NOT retry
  GROUP BY cluster_id, topic, partition_id, change_time
), written AS (
  SELECT
    cluster_id, client_id, topic, partition_id, append_time, base_offset, source_file, source_line,
    any_value(coalesce(log_end_offset - base_offset, 0)) AS records, collect_set(change_time) AS drops
  FROM append_log JOIN dropped USING (cluster_id, topic, partition_id)
  WHERE append_time BETWEEN since AND change_time
  GROUP BY cluster_id, client_id, topic, partition_id, append_time, base_offset, source_file, source_line
)
SELECT
  cluster_id, client_id, topic, count(*) AS appends, sum(records) AS records,
  size(array_distinct(flatten(collect_list(transform(drops, at -> struct(partition_id, at)))))) AS drops,
  min(struct(append_time, source_file, source_line)) AS first
FROM written
GROUP BY cluster_id, client_id, topic
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
    return questions(read_evidence(lake, cluster_id), from_requests(lake, [cluster_id])[cluster_id])


def from_requests(lake: Lake, cluster_ids: Sequence[str]) -> dict[str, FromRequests]:
    """Collect what only request logs tell, by cluster; what the lake does not have is empty.

    Parameters
    ----------
    lake : Lake
        With table shrink_evidence.
    cluster_ids : sequence of str
    """
    replayed = all(lake.has(table.name) for table in (SHRINK_VERDICTS, REPLAY_CHECK, REPLICA_TIMELINE))
    verdicts = _rows(lake, _VERDICTS, cluster_ids) if replayed else {}
    clients = _rows(lake, _CLIENTS, cluster_ids) if lake.has(APPEND_LOG.name) else {}
    return {name: FromRequests(verdicts.get(name, []), clients.get(name, [])) for name in cluster_ids}


def _rows(lake: Lake, query: str, cluster_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    rows, _ = lake.query(query.format(clusters=", ".join(map(literal, cluster_ids))))
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[str(row.pop("cluster_id"))].append(row)
    return found
