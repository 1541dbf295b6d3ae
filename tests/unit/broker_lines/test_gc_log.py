"""Pauses of a JVM, as each release prints them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.broker_lines.gc_log import GC_LINES, LEAST_MS, gc_pauses, gc_stamps
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.lake.arrow_sql import ArrowSql

# Printed by OpenJDK 17 (-Xlog:gc*,safepoint:file=...:time,tags) and 25 (:time,level,tags), shortened.
JDK_17 = """\
[2026-11-28T17:52:25.881+0000][gc,start       ] GC(17) Pause Full (System.gc())
[2026-11-28T17:52:25.905+0000][gc             ] GC(17) Pause Full (System.gc()) 26M->26M(62M) 23.412ms
[2026-11-28T17:52:25.905+0000][gc,cpu         ] GC(17) User=0.03s Sys=0.00s Real=0.02s
[2026-11-28T17:52:25.906+0000][safepoint      ] Safepoint "G1CollectFull", Time since last: 3926058 ns, \
Reaching safepoint: 1836 ns, Cleanup: 2557 ns, At safepoint: 24455681 ns, Total: 24460074 ns
[2026-11-28T17:52:25.943+0000][gc             ] GC(20) Pause Remark 38M->34M(62M) 1.830ms
[2026-11-28T17:52:25.980+0000][gc             ] GC(21) Concurrent Mark Cycle 26.320ms
"""
JDK_25 = """\
[2026-11-28T17:52:40.701+0000][info][gc       ] GC(3) Pause Young (System.gc()) 33M->31M(61M) 66.102ms
[2026-11-28T17:52:40.701+0000][info][safepoint] Safepoint "ParallelGCCollect", Time since last: 6814068 ns, \
Reaching safepoint: 4661 ns, At safepoint: 68162837 ns, Leaving safepoint: 2633 ns, Total: 68170131 ns, \
Threads: 0 runnable, 10 total
[2026-11-28T17:52:40.774+0000][info][safepoint] Safepoint "ThreadDump", Time since last: 4552057 ns, \
Reaching safepoint: 2778 ns, At safepoint: 66223 ns, Leaving safepoint: 808 ns, Total: 69809 ns, \
Threads: 0 runnable, 10 total
"""
JDK_8 = """\
2026-11-28T18:52:00.100+0100: 9.1: [GC pause (G1 Evacuation Pause) (young), 0.0661521 secs]
   [Parallel Time: 23.1 ms, GC Workers: 4]
2026-11-28T18:52:00.167+0100: 9.2: Total time for which application threads were stopped: 0.0670000 seconds, \
Stopping threads took: 0.0001000 seconds
2026-11-28T18:52:01.000+0100: 10.0: [GC concurrent-root-region-scan-end, 0.5012000 secs]
2026-11-28T18:52:02.000+0100: 11.0: [Full GC (Allocation Failure)  935071K->886745K(957764K), 5,8123456 secs]
2026-11-28T18:52:20.000+0100: 29.0: [GC (CMS Final Remark) [YG occupancy: 9 K (9 K)] 9K(9K), 0.0309292 secs] \
[Times: user=0.00 sys=0.00, real=0.03 secs]
2026-11-28T18:52:30.000+0100: 39.0: [GC (Allocation Failure) 39.0: [ParNew: 9K->9K(9K), 0.0000595 secs]39.0: \
[CMS39.9: [CMS-concurrent-mark: 9.643/9.647 secs] [Times: user=38.68 sys=0.00, real=9.65 secs]
 (concurrent mode failure): 9K->8K(9K), 2.7386697 secs] 9K->8K(9K), [Metaspace: 9K->9K(9K)], 2.7390678 secs] \
[Times: user=2.51 sys=0.00, real=2.74 secs]
39.000: [GC (Allocation Failure) 9K->8K(9K), 1.5000000 secs]
"""


@pytest.fixture(scope="module")
def sql() -> Iterator[ArrowSql]:
    with log_sql() as engine:
        yield engine


def pauses(sql: ArrowSql, text: str) -> list[tuple[str, str, float, int]]:
    """Start, name, length in ms and line of each pause."""
    values = pa.array(text.splitlines(), pa.string())
    number = len(values)
    lines = pa.table({
        "broker_id": pa.repeat(pa.scalar(1, pa.int32()), number), "source_file": pa.repeat("gc.log", number),
        "source_line": pa.array(range(1, number + 1)), "stamp_us": gc_stamps(values), "message": values,
    })  # fmt: skip
    found = gc_pauses(sql, lines.filter(pc.match_substring_regex(values, GC_LINES)))
    return [
        (f"{_time(row['from_us']):%H:%M:%S.%f}"[:-3], row["what"], (row["until_us"] - row["from_us"]) / 1000,
         row["source_line"]) for row in found.to_pylist()
    ]  # fmt: skip


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def test_pauses_of_each_release_with_the_safepoints_around_them(sql: ArrowSql) -> None:
    assert pauses(sql, JDK_17) == [("17:52:25.881", "Pause Full (System.gc())", 24.46, 2)]
    assert pauses(sql, JDK_25) == [("17:52:40.632", "Pause Young (System.gc())", 68.17, 1)]
    assert pauses(sql, JDK_8) == [
        ("17:52:00.100", "GC pause (G1 Evacuation Pause) (young)", 67.0, 1),
        ("17:52:02.000", "Full GC (Allocation Failure)", 5812.346, 5),
        ("17:52:20.000", "GC (CMS Final Remark)", 30.929, 6),
        ("17:52:30.000", "GC (Allocation Failure)", 2739.068, 8),
    ]


FORMS = {
    "unified": "[{end}+0000][info][gc] GC(1) Pause Full (x) 9M->8M(9M) {ms:.3f}ms",
    "safepoint": '[{end}+0000][info][safepoint] Safepoint "X", At safepoint: 1 ns, Total: {ns} ns, Threads: 1 runnable',
    "stopped": "{end}+0000: 1.0: Total time for which application threads were stopped: {s:.7f} seconds, Stopping",
    "old": "{start}+0000: 1.0: [Full GC (x)  9K->8K(9K), {s:.7f} secs]",
    "details": "{start}+0000: [GC (x) 9K->8K(9K), {s:.7f} secs] [Times: user=0.00 sys=0.00, real=0.01 secs] ",
}


@settings(max_examples=50, deadline=None)
@given(form=st.sampled_from([*FORMS]), lengths=st.lists(st.integers(1, 20_000), min_size=1, max_size=8))
def test_a_pause_is_read_as_long_as_it_was_in_every_form(sql: ArrowSql, form: str, lengths: list[int]) -> None:
    at, lines, expected = datetime(2026, 1, 1, tzinfo=UTC), [], []
    for ms in lengths:
        end = at + timedelta(milliseconds=ms)
        start, until = (f"{time:%Y-%m-%dT%H:%M:%S.%f}"[:-3] for time in (at, end))
        lines.append(FORMS[form].format(start=start, end=until, ms=ms, ns=ms * 1_000_000, s=ms / 1000))
        if ms >= LEAST_MS:
            expected.append((f"{at:%H:%M:%S.%f}"[:-3], ms))
        at = end + timedelta(milliseconds=2)
    assert [(start, ms) for start, _, ms, _ in pauses(sql, "\n".join(lines))] == expected
