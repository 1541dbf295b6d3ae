"""Explain ISR shrinks from server.log and state-change.log alone. This yields evidence, no verdicts, without Spark."""
