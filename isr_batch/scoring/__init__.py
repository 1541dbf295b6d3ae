"""Score rules: correct decisions and costs, compared with the brokers and with other rules."""
