"""Replay the input tables through every rule: pack events, choose days, run the kernel, write results."""
