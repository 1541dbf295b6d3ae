"""Contracts of all tables: columns, types, units, checks."""
