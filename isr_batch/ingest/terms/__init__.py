"""Leaders' terms, and the tables that are about them."""
