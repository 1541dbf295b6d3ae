"""Explain a shrink by a rule: collect its data, describe it in text, and draw it as a swim lane."""
