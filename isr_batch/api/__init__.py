"""The functions of `import isr_batch`, which take and return DataFrames."""
