"""Read request logs, and build the tables of fetches and appends."""
