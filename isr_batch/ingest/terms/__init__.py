"""Derive leaders' terms, and other tables about leaders and brokers."""
