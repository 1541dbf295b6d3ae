"""Fetch logs that users have as tables of their own, mapped by a YAML file."""
