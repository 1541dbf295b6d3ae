"""Read broker logs into the input tables: request.log, server.log, state-change.log and a decoded metadata log."""
