"""Infer when each leader ran its task isr-expiration, using the shrinks in a user's table of ISR changes.

Shrinks are the only evidence, because users' tables do not show when a broker was started.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from isr_batch.broker_lines.vendors import apache_release
from isr_batch.ingest.terms.broker_events import check_events, check_phases, checks_of_shrinks
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from udfs.rules import REGISTRY, rule_of_release

CHECKS_PER_LAG_TIME: Final = 2
"""Number of runs of isr-expiration per lag time in releases since 0.10. It is also assumed if the release is
unknown."""
_CHECK: Final = ("broker_id", "kind", "event_us", "end_us")


def silences_until_changes(sql: ArrowSql, silences: pa.Table, changes: pa.Table) -> pa.Table:
    """End each silence (a period without fetches from a leader) when the leader first changes an ISR in it.

    A leader that wakes up may run a check and change an ISR before it handles the first fetch.

    Parameters
    ----------
    sql : ArrowSql
    silences : pa.Table
        ``broker_id``, ``kind``, ``event_us``, ``end_us``.
    changes : pa.Table
        Rows of ``observed_isr_changes``.

    Returns
    -------
    pa.Table
        ``silences`` with an earlier ``end_us`` where there was an ISR change.
    """
    text = """
        SELECT broker_id, silences.kind, event_us,
          coalesce(min(epoch_us(change_time)) FILTER (epoch_us(change_time) BETWEEN event_us AND end_us), end_us)
            AS end_us
        FROM silences LEFT JOIN (FROM changes WHERE made_by = 'leader') AS own ON own.leader_id = broker_id
        GROUP BY broker_id, silences.kind, event_us, end_us ORDER BY broker_id, event_us
    """
    return sql(text, silences=silences, changes=without_zones(changes))


def checks_of_changes(
    sql: ArrowSql, changes: pa.Table, silences: pa.Table, terms: pa.Table
) -> tuple[pa.Table, Mapping[int, int]]:
    """List the checks that dropped followers, according to leaders' shrinks, and the phase of each leader's checks.

    Parameters
    ----------
    sql : ArrowSql
        Engine with the functions of `isr_batch.broker_lines.log_sql`.
    changes : pa.Table
        Rows of ``observed_isr_changes``.
    silences : pa.Table
        ``broker_id``, ``kind``, ``event_us``, ``end_us``.
    terms : pa.Table
        Rows of ``leader_epochs``.

    Returns
    -------
    checks : pa.Table
        ``broker_id``, ``kind``, ``event_us`` (when the check was due), ``end_us`` (when it ran).
    origins : mapping of int to int
        By leader, an instant at which a check ran, in milliseconds since 1970. Further checks are due at multiples of
        the period from it. It is derived from the leader's first day with shrinks, so that later days do not change
        earlier results.
    """
    releases = sorted({version for version in terms["broker_version"].to_pylist() if version})
    per_lag_time = {
        version: REGISTRY[rule_of_release(apache_release(version))].checks_per_lag_time for version in releases
    }
    known = sql(
        f"""
        SELECT leader_id AS broker_id, 0 AS process, max(replica_lag_time_max_ms) // max(
            coalesce(checks, {CHECKS_PER_LAG_TIME})
          ) AS period_ms,
          min(check_origin_ms) AS check_origin_ms, min(check_origin_source) AS check_origin_source
        FROM terms LEFT JOIN releases USING (broker_version) GROUP BY leader_id
        """,
        terms=without_zones(terms),
        releases=pa.table({
            "broker_version": pa.array(releases, pa.string()),
            "checks": pa.array([per_lag_time[version] for version in releases], pa.int32()),
        }),
    )  # fmt: skip
    shrinks = sql(
        "SELECT leader_id AS broker_id, epoch_us(change_time) AS stamp_us FROM changes "
        "WHERE kind = 'shrink' AND made_by = 'leader'",
        changes=without_zones(changes),
    )
    silent = sql("SELECT broker_id, event_us AS from_us, end_us AS until_us FROM silences WHERE kind = 'silent'",
                 silences=silences)  # fmt: skip
    checks = checks_of_shrinks(sql, shrinks, known, silent)
    first = sql(
        "SELECT * FROM checks QUALIFY at_us // 86400000000 = min(at_us // 86400000000) OVER (PARTITION BY broker_id)",
        checks=checks,
    )
    phases = check_phases(sql, first)
    known = sql(
        """
        SELECT broker_id, process,
          CASE WHEN check_origin_source = 'unknown' THEN coalesce(shrink_ms, 0) ELSE check_origin_ms END
            AS check_origin_ms,
          CASE WHEN check_origin_source = 'unknown' AND shrink_ms IS NOT NULL THEN 'shrinks'
            ELSE check_origin_source END AS check_origin_source
        FROM known LEFT JOIN phases USING (broker_id, process)
        """,
        known=known, phases=phases,
    )  # fmt: skip
    found = check_events(sql, checks, known).rename_columns(_CHECK)
    origins = zip(phases["broker_id"].to_pylist(), phases["shrink_ms"].to_pylist(), strict=True)
    return found, dict(origins)
