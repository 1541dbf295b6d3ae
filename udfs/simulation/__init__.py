"""A simulated cluster that writes a fetch log, compiled."""
