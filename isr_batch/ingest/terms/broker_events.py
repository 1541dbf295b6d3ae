"""Derive table broker_events: the silences of brokers, their isr-expiration checks, starts and shutdowns."""

from collections.abc import Sequence

import pyarrow as pa

from isr_batch.broker_lines import metadata_log, server_log
from isr_batch.broker_lines.log_sql import BUCKET_US
from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.requests.request_summary import SILENCE_US, WAITED_US
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql

_AFTER_SILENCE_US = 500_000
_ONE_CHECK_US = 500_000
_PHASE_SPREAD_MS = 100
_TOGETHER_US = 100_000
"""Maximum time, in microseconds, between the next requests of followers that were waiting for the same leader."""
_NONE = pa.table({name: pa.array([], pa.int64()) for name in ("broker_id", "from_us", "until_us")})


def broker_silences(sources: ParsedLogs, pauses: pa.Table, activity: pa.Table, signs: pa.Table) -> pa.Table:
    """Find the silences of brokers: periods in which a broker processed nothing although it should have.

    The columns are broker_id, process, from_us, until_us. There are three kinds of evidence, and each kind suffices:

    - A request was waiting for the broker.
    - Several followers were answered just before the period, and their next requests, without missing numbers, arrived
      together after it. A running follower sends its next request at once, and followers that were stopped themselves
      do not wake up together.
    - The period was longer than a lag time plus a check period, and right after it, a check ran late and dropped a
      follower.

    A broker that is just idle is not silent. In an idle cluster, all followers may wait for data at the same time, for
    half a second, and followers that are stopped send nothing. The checks of an idle broker run on time.

    Parameters
    ----------
    sources : ParsedLogs
    pauses : pa.Table
        Result of `isr_batch.ingest.requests.request_summary.request_pauses`.
    activity : pa.Table
        Times of lines in server.log: broker_id, at_us. Lines can be left out if another line is nearer to them than the
        length of a silence.
    signs : pa.Table
        Result of `isr_batch.ingest.requests.coverage.request_number_signs`.
    """
    # Late checks are evidence of silences, so the checks are first computed without silences.
    checks = checks_seen(sources, _NONE)
    return sources.sql(
        f"""
        WITH late AS (
            SELECT c.broker_id, c.at_us FROM checks c JOIN phases USING (broker_id, process)
            WHERE positive_modulo(c.at_us // 1000 - shrink_ms, period_ms) > {_PHASE_SPREAD_MS}
        ), paused AS (
            SELECT broker_id, before_us, first_us, waiting_since_us FROM pauses
            WHERE first_us - before_us >= {SILENCE_US}
        ), acts AS (
            SELECT broker_id, before_us, first_us, waiting_since_us, unnest([before_us, first_us]) AS at_us FROM paused
            UNION ALL
            SELECT p.*, a.at_us FROM paused p JOIN activity a
                ON p.broker_id = a.broker_id AND a.at_us BETWEEN p.before_us AND p.first_us
        ), gaps AS (
            SELECT broker_id, process, lag(at_us) OVER (PARTITION BY broker_id, before_us, process ORDER BY at_us)
                AS from_us, at_us AS until_us, waiting_since_us
            FROM (SELECT *, process_of_bucket(starts_us, at_us) AS process FROM acts JOIN settings USING (broker_id))
        )
        SELECT broker_id, process, from_us, until_us FROM gaps JOIN settings USING (broker_id)
        WHERE until_us - from_us >= {SILENCE_US} AND (waiting_since_us <= until_us - {WAITED_US}
            OR (SELECT count(DISTINCT s.replica_id) FROM signs s WHERE s.broker_id = gaps.broker_id
                AND s.sign = 'spanned' AND s.from_us >= gaps.from_us - {_TOGETHER_US}
                AND s.arrival_us BETWEEN gaps.until_us - {BUCKET_US} AND gaps.until_us + {_TOGETHER_US}) > 1
            OR until_us - from_us >= 1000 * (replica_lag_time_max_ms
                    + replica_lag_time_max_ms // checks_per_lag_time + {_PHASE_SPREAD_MS})
                AND EXISTS (FROM late WHERE late.broker_id = gaps.broker_id
                    AND late.at_us BETWEEN until_us - 1000 AND until_us + {_AFTER_SILENCE_US}))
        """,
        checks=checks,
        phases=check_phases(sources.sql, checks),
        pauses=pauses,
        activity=activity,
        signs=signs,
        settings=sources.settings,
    )


def checks_seen(sources: ParsedLogs, silent: pa.Table) -> pa.Table:
    """List the checks that dropped followers, according to Shrinking lines.

    The columns are broker_id, process, at_us, silent_from_us and period_ms.

    ``silent_from_us`` is the start of the silence that ended just before the check; null without a silence. Times are
    in microseconds since 1970.
    """
    settings = _check_periods(sources)
    shrinks = sources.sql(
        """
        SELECT broker_id, stamp_us, process_of(starts_us, stamp_us) AS process
        FROM shrinks JOIN settings USING (broker_id)
        """,
        shrinks=sources.shrinks, settings=settings,
    )  # fmt: skip
    return checks_of_shrinks(sources.sql, shrinks, settings, silent)


def checks_noted(sources: ParsedLogs, silent: pa.Table) -> pa.Table:
    """Return the times at which replicas left an ISR according to state-change.log, with the columns of `checks_seen`.

    Leaders drop replicas when isr-expiration runs, so their changes are multiples of the check period apart. Removals
    by the controller are logged in the same way, but can occur at any time. `broker_processes` distinguishes the two.
    """
    noted = sources.sql(
        """
        WITH states AS (
            SELECT broker_id, topic, partition_id, leader_epoch, isr, stamp_us, source_line FROM led
            UNION ALL SELECT broker_id, topic, partition_id, leader_epoch, isr, stamp_us, source_line FROM stayed
        ), following AS (
            SELECT *, lag(isr) OVER of_log AS isr_before, lag(leader_epoch) OVER of_log AS epoch_before
            FROM states WINDOW of_log AS (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line)
        )
        -- Up to 3.6 a change of the ISR begins an epoch.
        SELECT broker_id, process_of(starts_us, stamp_us) AS process, stamp_us
        FROM following JOIN settings USING (broker_id)
        WHERE leader_epoch - epoch_before IN (0, 1) AND len(list_without(isr_before, isr)) > 0
        """,
        led=sources.led,
        stayed=sources.stayed,
        settings=sources.settings,
    )
    return checks_of_shrinks(sources.sql, noted, _check_periods(sources), silent)


def _check_periods(sources: ParsedLogs) -> pa.Table:
    """Return the period of each broker's isr-expiration, in milliseconds: broker_id, starts_us, period_ms."""
    return sources.sql(
        "SELECT broker_id, starts_us, replica_lag_time_max_ms // checks_per_lag_time AS period_ms FROM settings",
        settings=sources.settings,
    )


def checks_of_shrinks(sql: ArrowSql, shrinks: pa.Table, settings: pa.Table, silent: pa.Table) -> pa.Table:
    """Group shrinks into the checks in which they happened. Return these checks, with the columns of `checks_seen`.

    Parameters
    ----------
    sql : ArrowSql
    shrinks : pa.Table
        broker_id, stamp_us and, optionally, process (by default 0).
    settings : pa.Table
        broker_id, period_ms.
    silent : pa.Table
        Silences: broker_id, from_us, until_us.
    """
    process = "process" if "process" in shrinks.column_names else "0 AS process"
    return sql(
        f"""
        WITH first_lines AS (
            SELECT broker_id, {process}, stamp_us FROM shrinks
            QUALIFY coalesce(stamp_us - lag(stamp_us) OVER (PARTITION BY broker_id ORDER BY stamp_us)
                > {_ONE_CHECK_US}, true)
        )
        SELECT l.broker_id, l.process, stamp_us AS at_us,
            (SELECT min(from_us) FROM silent s WHERE s.broker_id = l.broker_id AND s.until_us - 1000 <= stamp_us
                AND stamp_us <= s.until_us + {_AFTER_SILENCE_US}) AS silent_from_us, period_ms
        FROM first_lines l JOIN settings USING (broker_id)
        """,
        shrinks=shrinks,
        settings=settings,
        silent=silent,
    )


def broker_processes(  # noqa: PLR0913, PLR0917 all that processes are known by
    sources: ParsedLogs,
    pauses: pa.Table,
    activity: pa.Table,
    checks: pa.Table,
    noted: pa.Table,
    before: Sequence[Stretch] = (),
) -> pa.Table:
    """Describe the processes of each broker: how long each led partitions, its version, and the phase of its checks.

    The columns are broker_id, process, last_led_us, broker_version and those about the check origin. ``last_led_us`` is
    the time of the process's last request or Shrinking line, at which a replay ends. A process that is killed while it
    is paused may still write a few lines, but does not log its last requests.

    ``check_origin_ms`` is a time at which isr-expiration ran. The task runs with a fixed period from the start of the
    process. A run may be late, but never early. Therefore the origin is the check that most other checks follow by a
    multiple of the period, or slightly more. Without checks, it is the logged time at which the task was scheduled. If
    this line is missing too, the origin is the removal in ``noted`` with which most other removals are in phase. If
    there is only one removal, it may be the controller's, so the phase stays unknown.

    Parameters
    ----------
    sources : ParsedLogs
    pauses : pa.Table
        Result of `isr_batch.ingest.requests.request_summary.request_pauses`.
    activity : pa.Table
        Times of lines in server.log: broker_id, at_us.
    checks, noted : pa.Table
        Results of `checks_seen` and `checks_noted`.
    before : sequence of Stretch
        Periods that earlier request logs cover. Their ends are the last requests of processes that ended in these logs.
    """
    reached = pa.Table.from_pylist(
        [{"broker_id": stretch.broker_id, "at_us": stretch.until_us} for stretch in before], activity.schema
    )
    return sources.sql(
        """
        WITH led AS (
            SELECT broker_id, process_before AS process, before_us AS last_led_us FROM pauses
            WHERE process_before != process
            UNION ALL
            SELECT broker_id, process, last_us FROM pauses WHERE is_last
            UNION ALL
            SELECT broker_id, process_of_bucket(starts_us, stamp_us), stamp_us
            FROM shrinks JOIN settings USING (broker_id)
            UNION ALL
            SELECT broker_id, process_of_bucket(starts_us, at_us), at_us FROM reached JOIN settings USING (broker_id)
            UNION ALL
            SELECT broker_id, process_of_bucket(starts_us, at_us), NULL
            FROM activity JOIN settings USING (broker_id)
        )
        SELECT broker_id, process, max(last_led_us) AS last_led_us, any_value(broker_version) AS broker_version,
            any_value(coalesce(shrink_ms, startup_us // 1000, removed_ms, 0)) AS check_origin_ms,
            any_value(CASE WHEN shrink_ms IS NOT NULL THEN 'shrinks' WHEN startup_us IS NOT NULL THEN 'startup'
                WHEN together > 1 AND 2 * together > removals THEN 'removals' ELSE 'unknown' END) AS check_origin_source
        FROM led LEFT JOIN facts USING (broker_id, process) LEFT JOIN phases USING (broker_id, process)
        LEFT JOIN (SELECT broker_id, process, shrink_ms AS removed_ms, times AS together, checks AS removals FROM noted)
            USING (broker_id, process)
        GROUP BY broker_id, process
        """,
        pauses=pauses,
        shrinks=sources.shrinks,
        settings=sources.settings,
        activity=activity,
        reached=reached,
        facts=server_log.process_lines(sources.sql, sources.server, sources.settings),
        phases=check_phases(sources.sql, checks),
        noted=check_phases(sources.sql, noted),
    )


def check_phases(sql: ArrowSql, checks: pa.Table) -> pa.Table:
    """Return, for each process, the check with which most of its checks are in phase.

    The columns are broker_id, process, shrink_ms (time of this check), times (number of checks in phase with it,
    including itself) and checks (number of all checks of the process).
    """
    return sql(
        f"""
        WITH regular AS (
            SELECT broker_id, process, at_us // 1000 AS at_ms, max(period_ms) AS period_ms FROM checks
            WHERE silent_from_us IS NULL GROUP BY ALL
        ), followed AS (
            SELECT a.broker_id, a.process, a.at_ms,
                count(*) FILTER (positive_modulo(b.at_ms - a.at_ms, b.period_ms) <= {_PHASE_SPREAD_MS}) AS times
            FROM regular a JOIN regular b USING (broker_id, process) GROUP BY ALL
        )
        SELECT DISTINCT ON (broker_id, process) broker_id, process, at_ms AS shrink_ms, times,
            count(*) OVER (PARTITION BY broker_id, process) AS checks
        FROM followed
        ORDER BY times DESC, at_ms
        """,
        checks=checks,
    )


def check_events(sql: ArrowSql, checks: pa.Table, known: pa.Table) -> pa.Table:
    """Return the checks that dropped followers: broker_id, kind, at_us (when each was due), end_us (when it ran).

    A check right after a silence is the first one that became due during the silence. If the phase of the checks is
    unknown, it may have been due at any time since the silence began, and ``at_us`` is that beginning.

    Parameters
    ----------
    sql : ArrowSql
    checks : pa.Table
        Result of `checks_seen`.
    known : pa.Table
        Result of `broker_processes`.
    """
    spread = _PHASE_SPREAD_MS * 1000
    return sql(
        f"""
        WITH timed AS (
            SELECT *, period_ms * 1000 AS period_us, check_origin_ms * 1000 AS origin_us
            FROM checks JOIN known USING (broker_id, process)
        )
        SELECT broker_id, 'check' AS kind,
            CASE WHEN check_origin_source = 'unknown' THEN coalesce(silent_from_us, at_us) ELSE least(
                silent_from_us + positive_modulo(origin_us - silent_from_us, period_us),
                at_us + {spread} - positive_modulo(at_us + {spread} - origin_us, period_us), at_us) END AS at_us,
            at_us AS end_us
        FROM timed
        """,
        checks=checks,
        known=known,
    )


def broker_events(sources: ParsedLogs, silent: pa.Table, checks: pa.Table) -> pa.Table:
    """Return the rows of table broker_events: broker_id, kind, at_us, end_us.

    Fencing and shutdowns are taken from the metadata log or, without one, from the brokers' own lines.

    Parameters
    ----------
    sources : ParsedLogs
    silent : pa.Table
        Result of `broker_silences`.
    checks : pa.Table
        Result of `check_events`.
    """
    return sources.sql(
        """
        SELECT broker_id, 'started' AS kind, stamp_us AS at_us, stamp_us AS end_us FROM starts
        UNION ALL SELECT broker_id, 'silent', from_us, until_us FROM silent
        UNION ALL SELECT broker_id, kind, at_us, end_us FROM checks
        UNION ALL SELECT broker_id, kind, at_us, at_us FROM changes
        UNION ALL SELECT broker_id, kind, at_us, at_us FROM own WHERE NOT EXISTS (FROM changes)
        """,
        starts=server_log.process_starts(sources.sql, sources.server),
        silent=silent,
        checks=checks,
        changes=metadata_log.metadata_brokers(sources.sql, sources.metadata),
        own=server_log.own_states(sources.sql, sources.server),
    )
