"""Replay one partition's log on one leader: state, steps, causes of shrinks, and the ledger. All of it is compiled."""
