"""Read request log lines and their partitions as bytes, without creating an object or a string per value."""
