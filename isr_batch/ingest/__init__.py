"""Broker logs or own tables in, input tables out."""
