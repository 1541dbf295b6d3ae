"""Convert Arrow record batches to the kernels' input and back, for Spark's workers and for this process."""
