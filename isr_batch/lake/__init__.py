"""Delta tables: their location and contracts, and how they are read, written and queried."""
