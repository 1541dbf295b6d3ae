"""Ingest users' own tables of fetches; a YAML file maps their columns."""
