"""Query what only request logs show about shrinks: the replay's verdicts, and which clients wrote before a shrink."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from isr_batch.evidence.questions import RequestsForQuestions
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.lake.sql_files import sql_texts

_VERDICTS = """
SELECT cluster_id, known_by, verdict, primary_cause, lag_ms, true_lag_ms, avoiding_lag_time_ms
FROM ({view})
WHERE cluster_id IN (:clusters) AND verdict <> 'excluded'
"""
# If the time since which a follower lagged is unknown, one lag time is assumed. client_id is null for appends whose
# produce request is not logged.
_CLIENTS = """
WITH dropped AS (
  SELECT cluster_id, topic, partition_id, unix_micros(change_time) AS until_us, min(1000 * coalesce(
    last_caught_up_time_ms, unix_millis(change_time) - coalesce(replica_lag_time_max_ms, 10000)
  )) AS since_us
  FROM shrink_evidence
  WHERE cluster_id IN (:clusters) AND made_by = 'leader' AND NOT retry
  GROUP BY cluster_id, topic, partition_id, change_time
), written AS (
  SELECT
    cluster_id, client_id, topic, partition_id, until_us, append_time, source_file, source_line,
    coalesce(log_end_offset - base_offset, 0) AS records,
    row_number() OVER (
      PARTITION BY cluster_id, client_id, topic, partition_id, append_time, base_offset, source_file, source_line
      ORDER BY until_us
    ) AS nth
  FROM append_log JOIN dropped USING (cluster_id, topic, partition_id)
  WHERE unix_micros(append_time) BETWEEN since_us AND until_us
)
SELECT
  cluster_id, client_id, topic,
  count_if(nth = 1) AS appends,
  CAST(sum(if(nth = 1, records, 0)) AS BIGINT) AS records,
  count(DISTINCT (partition_id, until_us)) AS drops,
  min_by(source_file, (append_time, source_file, source_line)) AS first_file,
  min_by(source_line, (append_time, source_file, source_line)) AS first_line
FROM written
GROUP BY cluster_id, client_id, topic
ORDER BY records DESC, appends DESC, topic, client_id
"""


def collect_with_requests(lake: Lake, cluster_ids: Sequence[str]) -> dict[str, RequestsForQuestions]:
    """Query the verdicts on shrinks, and the clients that wrote before each shrink. Return both by cluster.

    Both lists are empty for a cluster that has no request logs in the lake.

    Parameters
    ----------
    lake : Lake
        A lake that contains table shrink_evidence.
    cluster_ids : sequence of str
    """
    clusters = [(name,) for name in cluster_ids]
    with LakeSql(lake) as sql:
        verdicts = _question_rows_by_cluster(
            sql(_VERDICTS.format(view=sql_texts()["evidence_and_verdicts"]), clusters=clusters)
        )
        clients = _question_rows_by_cluster(sql(_CLIENTS, clusters=clusters))
    for row in (row for rows in clients.values() for row in rows):
        row["first"] = {"source_file": row.pop("first_file"), "source_line": row.pop("first_line")}
    return {name: RequestsForQuestions(verdicts[name], clients[name]) for name in cluster_ids}


def _question_rows_by_cluster(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[str(row.pop("cluster_id"))].append(row)
    return found
