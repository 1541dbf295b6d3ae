"""Derive the terms of leaders, ISR changes, broker events and so on from parsed logs."""
