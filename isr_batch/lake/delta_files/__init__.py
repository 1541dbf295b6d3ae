"""Data files of Delta tables, read and written without Spark; and the commits that add them."""
