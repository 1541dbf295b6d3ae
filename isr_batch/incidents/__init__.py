"""Which followers the brokers dropped without reason, which broker that points at, and what would have avoided it."""
