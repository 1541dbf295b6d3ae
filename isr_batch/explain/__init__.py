"""Explain one shrink of a rule: collect its data, describe it in text, draw it as a swim lane."""
