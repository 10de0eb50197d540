"""Complex matrices on the CPU, as real ones of twice the size (`roundwise.backends.real_form`)."""
