"""Where the rows of an ingest are processed: in this process, or in Spark's workers."""
