"""Read broker logs into input tables: request log, server log, state-change log and decoded metadata log."""
