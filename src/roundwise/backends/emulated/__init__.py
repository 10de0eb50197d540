"""Emulated arithmetic: `operation` rounds every operation, `storage` what is stored."""
