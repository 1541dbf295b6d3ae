"""What a rule got right and what it cost, compared with the brokers and with other rules."""
