"""Columns of the replay's stream for rows that are not events: starts of terms, and states from earlier windows."""

import pyarrow as pa

TERM_FIELDS = (
    ("leader_epoch", pa.int32()),
    ("end_us", pa.int64()),
    ("high_watermark", pa.int64()),
    ("assigned", pa.list_(pa.int32())),
    ("isr_at_start", pa.list_(pa.int32())),
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
"""Fields of a TERM row beyond its time and ``offset`` (the start offset), as a struct column ``term``."""

OF_BROKER = ("replica_lag_time_max_ms", "min_insync_replicas", "check_origin_ms", "isr_write_ms")
"""Fields of a TERM row with settings of the leader, which are the default parameters of a rule run."""

KEPT_FIELDS = (
    ("leader_epoch", pa.int32()),
    ("end_us", pa.int64()),
    ("ends_mid_term", pa.bool_()),
    ("assigned", pa.list_(pa.int32())),
    ("params", pa.list_(pa.string())),
    ("state", pa.binary()),
)
"""Fields of a GOES_ON row: the state that the window before this one ended with, as a struct column ``kept``.

All but ``end_us`` and ``ends_mid_term``, which describe the end of the term, are those of a STATE result."""
