"""Read the lines of request logs, and the partitions in them, from bytes, without one Python object per value."""
