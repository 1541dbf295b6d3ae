"""A compiled simulation of a cluster that writes a fetch log."""
