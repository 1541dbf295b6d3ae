"""The compiled replay of one replica set: state, steps, verdicts, ledger."""
