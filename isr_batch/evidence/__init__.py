"""Explain ISR shrinks from server.log and state-change.log alone: evidence, but no verdicts. Needs no Spark."""
