"""Least squares: the augmented system, its refinement, and a gate of its own."""
