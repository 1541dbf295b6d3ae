"""The replay engine. It needs numpy, numba and pyarrow only. It never calls Spark, reads the clock or opens files."""

__version__ = "0.1.0"
