"""Explain a shrink that a rule made: collect its data, describe it in text, and draw it as a swim lane."""
