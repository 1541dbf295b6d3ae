"""Commands and jobs, which read options, call `isr_batch`, and return an exit code."""
