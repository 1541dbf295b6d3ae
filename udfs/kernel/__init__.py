"""The replay of one replica set, compiled: state, steps, verdicts, ledger."""
