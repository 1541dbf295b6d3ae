"""The replay itself: numpy, numba and pyarrow. No Spark, no clock, no files."""

__version__ = "0.1.0"
