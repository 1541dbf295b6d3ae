"""Convert Arrow record batches to arrays for the kernels and back, in Spark's workers and in the main process."""
