"""What server.log (and state-change.log) alone tells about ISR shrinks, without Spark: evidence, not verdicts."""
