"""Explain ISR shrinks using only server.log and state-change.log. The result is evidence, not verdicts. No Spark."""
