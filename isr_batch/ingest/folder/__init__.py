"""Find the logs in a folder, the brokers that wrote them and the settings next to them, and read the logs' lines."""
