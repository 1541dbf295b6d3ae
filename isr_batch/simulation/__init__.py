"""Fetch logs of simulated clusters, with planted faults and with examples of the proposals."""
