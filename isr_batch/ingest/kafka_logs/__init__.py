"""Derive the input tables from request.log, server.log, state-change.log, gc.log and a decoded metadata log."""
