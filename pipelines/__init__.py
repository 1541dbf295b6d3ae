"""The commands of `isr-batch`. They parse options, call the package `isr_batch`, and set the exit code."""
