"""`solve` and `factor` for arrays on a GPU."""
