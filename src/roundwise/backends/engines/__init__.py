"""Sparse factorizations behind one contract."""
