"""Score rules: how many of their decisions were right, at what cost, compared with brokers and other rules."""
