"""Derive the terms of leaders, and other tables about leaders and brokers, from parsed logs."""
