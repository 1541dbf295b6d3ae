"""Replay Kafka fetch logs through every ISR rule, and say which shrinks were spurious."""

__version__ = "0.1.0"
