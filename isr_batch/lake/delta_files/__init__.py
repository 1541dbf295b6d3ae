"""Read, write and commit data files of Delta tables without Spark."""
