"""Patterns for the lines that brokers print, except those of request logs: one pattern per form."""
