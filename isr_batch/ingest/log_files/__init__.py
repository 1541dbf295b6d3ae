"""Files of logs, in whatever layout they were written: found, unpacked, and cut into lines of Kafka's own layout."""
