"""A folder of logs: its files, their brokers, settings and lines."""
