"""Complex systems, solved in their real form."""
