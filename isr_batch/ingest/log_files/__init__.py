"""Unpack log files, recognise their layouts, and convert their lines to Kafka's own layout."""
