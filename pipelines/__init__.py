"""The jobs: options in, exit code out; what they do is in `isr_batch`."""
