"""Patterns for the log lines that brokers write, except request logs, in all wordings of the releases."""
