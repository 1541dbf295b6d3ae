"""Delta tables: where they are, their contracts, how they are read and written."""
