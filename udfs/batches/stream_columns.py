"""Columns of the replay's input for rows that are not events: starts of terms, and states from earlier windows."""

import pyarrow as pa

TERM_FIELDS = (
    ("leader_epoch", pa.int32()),
    ("end_us", pa.int64()),
    ("high_watermark", pa.int64()),
    ("assigned", pa.list_(pa.int32())),
    ("isr_at_start", pa.list_(pa.int32())),
    ("observers", pa.list_(pa.int32())),
    ("leader_is_new", pa.bool_()),
    ("process_is_new", pa.bool_()),
    ("replica_lag_time_max_ms", pa.int64()),
    ("min_insync_replicas", pa.int64()),
    ("check_origin_ms", pa.int64()),
    ("isr_write_ms", pa.int64()),
    ("begins_mid_term", pa.bool_()),
    ("ends_mid_term", pa.bool_()),
    ("offsets_known", pa.bool_()),
    ("phase_known", pa.bool_()),
    ("isr_known", pa.bool_()),
    ("held_known", pa.bool_()),
    ("held_at_start", pa.list_(pa.int64())),
)
"""Fields of the struct column ``term`` of a TERM_STARTS row, which begins a term (the time of one leader epoch).
``time_us`` of this row is the start of the term, and ``offset`` is the leader's log end at the start."""

OF_BROKER = ("replica_lag_time_max_ms", "min_insync_replicas", "check_origin_ms", "isr_write_ms")
"""Fields of ``term`` with the leader's settings. A rule run uses them for parameters that the user did not set."""

KEPT_FIELDS = (
    ("leader_epoch", pa.int32()),
    ("end_us", pa.int64()),
    ("ends_mid_term", pa.bool_()),
    ("assigned", pa.list_(pa.int32())),
    ("params", pa.list_(pa.string())),
    ("state", pa.binary()),
)
"""Fields of the struct column ``kept`` of a GOES_ON row: the state of a replica set at the end of the previous window.

``end_us`` and ``ends_mid_term`` describe the end of the term. All other fields are columns of a STATE result."""
