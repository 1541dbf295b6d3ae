"""Explain one shrink: collect its data, describe it in text, draw it as a swim lane."""
