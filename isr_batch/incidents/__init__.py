"""Group the brokers' drops into incidents, name the broker at fault, and find rules that keep healthy followers."""
