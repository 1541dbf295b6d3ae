"""Find and unpack log files of any layout, and convert them to lines in Kafka's own layout."""
