"""Simulate clusters, and write their fetch logs: fleets with planted faults, and examples from Kafka proposals."""
