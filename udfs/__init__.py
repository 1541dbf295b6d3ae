"""The replay engine. It only uses numpy, numba and pyarrow, and neither Spark, clocks nor files."""

__version__ = "0.1.0"
