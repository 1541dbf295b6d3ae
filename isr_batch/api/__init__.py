"""What `import isr_batch` offers: frames in, frames out."""
