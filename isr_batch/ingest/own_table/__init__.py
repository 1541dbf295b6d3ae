"""Ingest a user's own table of fetches, whose columns are mapped in a YAML file."""
