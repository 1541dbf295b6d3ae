"""Find the logs in a folder: files, the brokers that wrote them, settings next to them, and their lines."""
