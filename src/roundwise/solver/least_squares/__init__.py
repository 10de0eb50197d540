"""`lstsq`, and what it returns."""
