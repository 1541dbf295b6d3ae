"""One shrink: its facts, its story in words, its swim lane."""
