"""The jobs: options in, exit code out; the work is done in `isr_batch`."""
