"""The functions of `import isr_batch`. They take and return DataFrames."""
