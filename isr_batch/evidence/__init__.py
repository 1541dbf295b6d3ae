"""Evidence about ISR shrinks from server.log (and state-change.log) alone, without Spark; no verdicts."""
