"""Patterns and parsers for the lines of brokers' logs (not request logs), in the wordings of all Kafka releases."""
