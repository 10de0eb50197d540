"""The machine's own arithmetic on the CPU."""
