"""Incidents: the brokers' drops of followers, the broker at fault, and rules that would have kept healthy ones."""
