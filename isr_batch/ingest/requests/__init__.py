"""Request logs, and the tables of fetches and appends."""
