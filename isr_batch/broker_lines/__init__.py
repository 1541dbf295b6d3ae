"""The lines that brokers print, but for request logs: one pattern for each form."""
