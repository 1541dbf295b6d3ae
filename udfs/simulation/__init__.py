"""A compiled simulation of a cluster. It writes the log that the brokers would write."""
