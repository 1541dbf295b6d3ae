"""Derive leaders' terms from parsed logs, and other tables about leaders and brokers."""
