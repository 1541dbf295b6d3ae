"""The public interface of `import isr_batch`, which takes and returns frames."""
