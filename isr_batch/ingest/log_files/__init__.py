"""Find and unpack log files in any known layout, and convert their lines to Kafka's own layout."""
