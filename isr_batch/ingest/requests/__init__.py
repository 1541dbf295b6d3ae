"""Read request logs, and build the rows of fetch_log and append_log."""
