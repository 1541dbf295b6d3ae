"""Incidents: brokers' drops of followers, the broker at fault, and rules that would have kept healthy followers."""
