"""Incidents: drops of followers by brokers, the broker at fault, and rules that would have kept the healthy ones."""
