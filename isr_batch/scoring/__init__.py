"""Score the rules of a replay: how many decisions were right, at what cost, compared with brokers and other rules."""
