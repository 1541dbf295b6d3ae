"""The contracts of all tables: columns, types, units, constraints."""
