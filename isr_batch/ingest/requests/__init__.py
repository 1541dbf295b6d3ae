"""Parse request logs, and derive the rows of fetch_log and append_log from them."""
