"""Replay the input tables through every rule: packing, days, results."""
