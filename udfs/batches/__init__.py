"""Arrow record batches in and out of the kernels, as Spark's workers call them."""
