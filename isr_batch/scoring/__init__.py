"""Score rules: how many of their decisions were right, and at what cost. Compare them with brokers and each other."""
