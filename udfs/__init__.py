"""The replay engine, which only uses numpy, numba and pyarrow: no Spark, no clock, no files."""

__version__ = "0.1.0"
