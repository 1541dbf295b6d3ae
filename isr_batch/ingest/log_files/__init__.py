"""Find and unpack log files in any layout, and convert their lines to Kafka's own layout."""
