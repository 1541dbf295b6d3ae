"""Read lines of request logs, and the partitions in them, from bytes, without a Python object per value."""
