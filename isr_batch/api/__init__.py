"""The public interface of `import isr_batch`: functions that take and return DataFrames."""
