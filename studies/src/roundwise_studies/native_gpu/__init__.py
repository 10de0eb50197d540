"""The native study on a GPU: measured there, beside cuSOLVER."""
