"""Parse request logs, and make the rows of fetch_log and append_log from them."""
