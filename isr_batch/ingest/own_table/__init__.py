"""Ingest a user's own table of fetches, following a mapping of its columns in a YAML file."""
