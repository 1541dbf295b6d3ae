"""Ingest broker logs, or users' own tables of fetches, into the input tables of a lake."""
