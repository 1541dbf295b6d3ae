"""The commands and jobs: they read options, call `isr_batch`, and return an exit code."""
