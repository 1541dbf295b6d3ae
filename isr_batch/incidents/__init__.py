"""Incidents: healthy followers that the brokers dropped, the broker at fault, and rules that would have kept them."""
