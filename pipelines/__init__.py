"""The commands of `isr-batch`, which parse options, call the package `isr_batch`, and set the exit code."""
