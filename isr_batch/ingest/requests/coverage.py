"""Find the periods that each broker's request log covers.

Only within such a period, a missing line means a missing fetch.

A request log may begin long after its broker was started. It has a gap if an hourly file was not copied, or if the
logger was off for some time. The lines themselves distinguish a gap from a time in which the broker was idle:

- A follower's requests are numbered: in a fetch session by the session epoch, before Kafka 1.1 by the correlation id.
  If the numbers continue after a time without lines, no line is missing; for example, the leader was paused. If they
  jump, or if the first number in the log is too high to be the follower's first, lines are missing.
- Requests that were in progress during a time without lines are no evidence, because a client may wait for seconds.
- A follower that is down when a log begins starts again from the first number. Therefore numbers alone do not show that
  a log begins with its broker's start. If there is a server.log, the start is only assumed if that log shows it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.in_spark import Query
from isr_batch.ingest.folder.log_folder import GC, REQUEST, SERVER, STATE_CHANGE
from isr_batch.ingest.requests.request_log import FOLLOWER_FETCH
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns

GAP_US = 1_500_000
"""Shortest time without lines, in microseconds, that may be a gap. A follower waits for data for at most half a second,
so it should cause three lines in this time."""
_FIRST_NUMBERS = 2
"""Highest epoch that the first logged request of a fetch session may have if no lines before it are missing. It is more
than 1 because lines may have been refused."""
_FIRST_CORRELATIONS = 20
"""Highest correlation id that a follower's first fetch may have. It is more than 0 because a fetcher thread requests
offsets first."""
NEAR_US = 50_000
_STARTUP_US = 60_000_000
"""Longest time, in microseconds, from the first line of a broker process to its first request."""
NUMBERED = arrow_columns(
    "source_file STRING, broker_id INT, replica_id INT, client_id STRING, session INT, error_code INT, "
    "arrival_us BIGINT, completed_us BIGINT, source_line BIGINT, number BIGINT"
)
"""Schema of the result of the query `NUMBERS`."""
NO_NUMBERS = NUMBERED.empty_table()
_SIGNS = arrow_columns("broker_id INT, replica_id INT, from_us BIGINT, arrival_us BIGINT, until_us BIGINT, sign STRING")
_STRETCHES = pa.schema([
    ("broker_id", pa.int32()), ("first_us", pa.int64()), ("until_us", pa.int64()), ("from_start", pa.bool_()),
])  # fmt: skip


@dataclass(frozen=True)
class Stretch:
    """A period that the request log of a broker covers without a gap.

    Parameters
    ----------
    broker_id : int
    first_us, until_us : int
        Completion times of the first and the last request in the period, in microseconds since 1970.
    from_start : bool
        Whether the period begins with the followers' first fetches, so that no earlier lines are missing.
    """

    broker_id: int
    first_us: int
    until_us: int
    from_start: bool

    def has(self, us: int) -> bool:
        """Return whether the log has all requests that were completed at a time, in microseconds since 1970."""
        return us <= self.until_us and (self.from_start or us >= self.first_us)


def coverage(by_file: pa.Table, pauses: pa.Table, signs: pa.Table) -> list[Stretch]:
    """Return the periods that the request logs of each broker cover without a gap, sorted by broker and time.

    Parameters
    ----------
    by_file, pauses : pa.Table
        Results of `requests_by_file` and `request_pauses` in `isr_batch.ingest.requests.request_summary`.
    signs : pa.Table
        Result of `request_number_signs`.
    """
    spans: dict[int, tuple[int, int]] = {}
    for row in by_file.to_pylist():
        if row["reason"] is None and row["first_us"] is not None:
            first_us, last_us = spans.get(row["broker_id"], (row["first_us"], row["last_us"]))
            spans[row["broker_id"]] = min(first_us, row["first_us"]), max(last_us, row["last_us"])
    found: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for row in pauses.to_pylist():
        if row["before_done_us"] is not None and row["done_us"] is not None:
            found[row["broker_id"], "gap"].append((row["before_done_us"], row["done_us"]))
    for row in signs.to_pylist():
        found[row["broker_id"], row["sign"]].append((row["from_us"], row["until_us"]))
    stretches = []
    for broker_id, span in sorted(spans.items()):
        # A pause that began before the first line of these logs is not a gap in them.
        gaps = [gap for gap in found[broker_id, "gap"] if gap[1] - gap[0] >= GAP_US and gap[0] >= span[0]]
        stretches += stretches_of(broker_id, span, gaps, found[broker_id, "spanned"], found[broker_id, "break"])
    return stretches


def stretches_of(
    broker_id: int,
    span: tuple[int, int],
    gaps: Iterable[tuple[int, int]],
    spanned: Sequence[tuple[int, int]],
    breaks: Iterable[tuple[int | None, int]],
) -> list[Stretch]:
    """Divide the time of a broker's request log at the gaps, and return the covered periods.

    Parameters
    ----------
    broker_id : int
    span : (int, int)
        First and last completion of a request, in microseconds since 1970.
    gaps : iterable of (int, int)
        Periods of at least `GAP_US` without any line.
    spanned : sequence of (int, int)
        Periods in which no lines are missing: each is from a follower's request to one with the next number (session
        epoch or correlation id).
    breaks : iterable of (int or None, int)
        Periods in which lines of a follower are missing, because the number jumps. None is an unknown start.
    """
    whole = [gap for gap in sorted(gaps) if not _is_gap_spanned(gap, spanned)]
    holes: set[tuple[int, int]] = set()
    from_start = True
    for since_us, at_us in sorted(breaks, key=lambda each: each[1]):
        before = [gap for gap in whole if gap[1] <= at_us + NEAR_US]
        if since_us is not None:
            within = [gap for gap in before if gap[0] >= since_us - NEAR_US]
            if within:
                holes.add(max(within, key=lambda gap: gap[1] - gap[0]))
        elif before and from_start:
            holes.add(before[-1])
        elif not before:
            from_start = False
    stretches, first_us = [], span[0]
    for hole in [*sorted(holes), None]:
        until_us = hole[0] if hole else span[1]
        stretches.append(Stretch(broker_id, first_us, until_us, from_start))
        if hole:
            first_us, from_start = hole[1], False
    return stretches


def with_process_starts(stretches: Iterable[Stretch], files: pa.Table, settings: pa.Table) -> list[Stretch]:
    """Set ``from_start`` (no earlier lines are missing) of periods to false if server.log does not confirm it.

    The log confirms it if the period and the log itself both begin when the broker was first started. For a broker
    without server.log, ``from_start`` stays unchanged.

    Parameters
    ----------
    stretches : iterable of Stretch
    files : pa.Table
        All logs except request logs: kind, broker_id, first_us.
    settings : pa.Table
        Times at which each broker was started: broker_id, starts_us.
    """
    rows = files.to_pylist()
    logged: dict[int, int] = {}
    for row in rows:
        if row["kind"] == SERVER and row["first_us"] is not None:
            logged[row["broker_id"]] = min(row["first_us"], logged.get(row["broker_id"], row["first_us"]))
    starts = {row["broker_id"]: min(row["starts_us"], default=None) for row in settings.to_pylist()}

    def begins_with_broker(stretch: Stretch) -> bool:
        """Return whether server.log, if there is one, shows the broker's first start at the beginning of the period."""
        if stretch.broker_id not in logged:
            return True
        start_us = starts.get(stretch.broker_id)
        return start_us is not None and all(
            abs(us - start_us) <= _STARTUP_US for us in (stretch.first_us, logged[stretch.broker_id])
        )

    return [replace(each, from_start=each.from_start and begins_with_broker(each)) for each in stretches]


def stretch_number(stretches: Sequence[Stretch], broker: str, us: str) -> str:
    """Return a SQL expression for the number, from 0, of the broker's covered period at an instant.

    In a gap, the result is the number of the period before.

    Parameters
    ----------
    stretches : sequence of Stretch
    broker, us : str
        SQL expressions for the broker and for the instant, in microseconds since 1970.
    """
    passed = [
        f"WHEN {broker} = {broker_id} THEN {' + '.join(f'CAST({us} >= {end} AS INTEGER)' for end in ends)}"
        for broker_id, ends in _ends_of_gaps(stretches).items()
    ]
    return f"CAST(CASE {' '.join(passed)} ELSE 0 END AS INTEGER)" if passed else "CAST(0 AS INTEGER)"


def with_stretch_number(
    table: pa.Table, stretches: Sequence[Stretch], broker: str, us: str, name: str = "log_stretch"
) -> pa.Table:  # fmt: skip
    """Add column ``name``: the number of the covered period of each row, as `stretch_number` computes it.

    ``broker`` and ``us`` are the columns with the broker id and the time of a row.
    """
    brokers, times = table[broker].to_numpy(), table[us].to_numpy()
    numbers = np.zeros(table.num_rows, np.int32)
    for broker_id, ends in _ends_of_gaps(stretches).items():
        numbers[brokers == broker_id] = np.searchsorted(ends, times[brokers == broker_id], side="right")
    return table.append_column(name, pa.array(numbers))


def is_last_stretch(stretches: Sequence[Stretch], broker: str, number: str) -> str:
    """Return a SQL condition: whether ``number`` is that of the last covered period of the broker's log."""
    last = [f"WHEN {broker} = {broker_id} THEN {len(ends)}" for broker_id, ends in _ends_of_gaps(stretches).items()]
    return f"{number} = CASE {' '.join(last)} ELSE 0 END" if last else f"{number} = 0"


def coverage_rows(sql: ArrowSql, stretches: Sequence[Stretch], files: pa.Table) -> pa.Table:
    """Return the rows of table coverage: broker_id, log, from_us, until_us, begins_mid_term.

    Parameters
    ----------
    sql : ArrowSql
    stretches : sequence of Stretch
        Periods that the request logs cover.
    files : pa.Table
        All logs except request logs: kind, broker_id, first_us, last_us, informs. A server.log without lines at INFO
        (``informs``) covers no time.
    """
    return sql(
        f"""
        SELECT broker_id, '{REQUEST}' AS log, first_us AS from_us, until_us, NOT from_start AS begins_mid_term
        FROM stretches
        UNION ALL
        SELECT broker_id, kind, min(first_us), max(last_us), NULL FROM files
        WHERE (kind IN ('{STATE_CHANGE}', '{GC}') OR (kind = '{SERVER}' AND informs)) AND first_us IS NOT NULL
        GROUP BY broker_id, kind
        """,
        stretches=pa.Table.from_pylist([asdict(stretch) for stretch in stretches], _STRETCHES),
        files=files,
    )


def _ends_of_gaps(stretches: Sequence[Stretch]) -> dict[int, list[int]]:
    """Return, by broker, the times at which its request log continues after a gap. Brokers without gaps are omitted."""
    begins: dict[int, list[int]] = defaultdict(list)
    for stretch in stretches:
        begins[stretch.broker_id].append(stretch.first_us)
    return {broker_id: first[1:] for broker_id, first in begins.items() if len(first) > 1}


def _is_gap_spanned(gap: tuple[int, int], spanned: Sequence[tuple[int, int]]) -> bool:
    """Return whether no line is missing in a gap, because the gap is within a period in ``spanned``.

    In these periods, the request numbers of some follower are consecutive.
    """
    return any(since <= gap[0] + NEAR_US and until >= gap[1] - NEAR_US for since, until in spanned)


# A full fetch opens a fetch session. Its request contains no session id, so the id is taken from the response.
NUMBERS = Query(
    f"""
    SELECT source_file, broker_id, replica_id, client_id, session, error_code, arrival_us, completed_us, source_line,
        CASE WHEN session != 0 THEN greatest(session_epoch, 0) ELSE correlation_id END AS number
    FROM (SELECT *, coalesce(CASE WHEN session_epoch > 0 THEN asked_session ELSE given_session END, 0) AS session
        FROM rows WHERE completed_us IS NOT NULL AND reason IS NULL AND kind = '{FOLLOWER_FETCH}')
    """,
    NUMBERED,
)
"""Query that selects the numbers of followers' requests in parsed request logs."""


_SESSION = ["broker_id", "replica_id", "client_id", "session"]


def last_numbers(engine: Engine, numbers: Rows) -> pa.Table:
    """Return the last request of each fetch session in each file, with the columns of `NUMBERED`."""

    def last(sql: ArrowSql, fetches: pa.Table) -> pa.Table:
        """Return the last request of each fetch session in each file."""
        return sql(
            f"""
            SELECT DISTINCT ON (source_file, {", ".join(_SESSION)}) * FROM fetches
            ORDER BY CASE WHEN session != 0 THEN number ELSE 0 END DESC, completed_us DESC, number DESC
            """,
            fetches=fetches,
        )

    return engine.collect(engine.by_key(_SESSION, last, NUMBERED, fetches=numbers))


def request_number_signs(engine: Engine, numbers: Rows, before: pa.Table = NO_NUMBERS) -> pa.Table:
    """Find the times between two logged requests of a follower in which lines are missing, or certainly not missing.

    A follower numbers its requests: by session epoch or, before Kafka 1.1, by correlation id. If the number jumps, the
    lines of the requests between are missing.

    Parameters
    ----------
    engine : Engine
    numbers : Rows
        Result of the query `NUMBERS`.
    before : pa.Table
        The last request of each fetch session in earlier logs, with the columns of `NUMBERED`.

    Returns
    -------
    pa.Table
        broker_id; replica_id; sign, which is ``spanned`` if the numbers continue and ``break`` if they jump; from_us,
        the completion of the earlier request (null if unknown); arrival_us and until_us, the arrival and the completion
        of the later request.
    """
    return engine.collect(engine.by_key(_SESSION, _signs_of_gaps, _SIGNS, fetches=numbers, before=before))


def _signs_of_gaps(sql: ArrowSql, fetches: pa.Table, before: pa.Table) -> pa.Table:
    """Return the rows of `request_number_signs` for some fetch sessions.

    ``before`` are the last requests of sessions in earlier logs.
    """
    # In releases without fetch sessions, a fetcher's requests for offsets use the same sequence of numbers. A fetcher
    # has at most one request in flight, so its requests are sorted by time. On a new connection, numbers restart at 0.
    return sql(
        f"""
        WITH steps AS (
            SELECT *, lag(number) OVER numbers AS before, lag(completed_us) OVER numbers AS before_us FROM fetches
            WINDOW numbers AS (PARTITION BY broker_id, replica_id, client_id, session
                ORDER BY CASE WHEN session != 0 THEN number ELSE 0 END, completed_us, number, source_line)
        ), judged AS (
            SELECT *, completed_us - before_us AS since_us, error_code = 0 AS served,
                session = 0 AND number < before AS starts_anew,
                number - before > CASE WHEN session != 0 THEN 1 ELSE 2 END AS skipped,
                number > CASE WHEN session != 0 THEN {_FIRST_NUMBERS} ELSE {_FIRST_CORRELATIONS} END AS is_later
            FROM steps
        ), signs AS (
            SELECT broker_id, replica_id, before_us AS from_us, arrival_us, completed_us AS until_us,
                CASE WHEN before IS NULL AND is_later AND served THEN 'break'
                    WHEN starts_anew THEN CASE WHEN is_later AND served AND since_us >= {GAP_US} THEN 'break' END
                    WHEN skipped AND served AND since_us >= {GAP_US} THEN 'break'
                    WHEN NOT skipped AND since_us >= {GAP_US} THEN 'spanned' END AS sign
            FROM judged
        )
        SELECT * FROM signs WHERE sign IS NOT NULL
        """,
        fetches=pa.concat_tables([fetches, before.select(fetches.column_names).cast(fetches.schema)]),
    )
