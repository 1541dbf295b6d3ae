"""Delta tables: their locations, contracts, reading and writing."""
