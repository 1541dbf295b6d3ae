"""Delta tables: where they lie, the contract of each, how they are read, written and queried."""
