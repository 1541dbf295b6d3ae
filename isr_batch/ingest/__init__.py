"""Read broker logs, or users' own tables, into the input tables of a lake."""
