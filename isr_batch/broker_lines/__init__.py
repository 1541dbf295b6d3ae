"""Patterns for the lines that brokers print, except request logs: one pattern per form of a line."""
