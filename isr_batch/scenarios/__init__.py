"""Logs with known causes: the examples that proposals argue from, by hand."""
