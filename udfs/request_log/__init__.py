"""Lines of the request log and their partitions as bytes: read without an object or a string per value."""
