"""The paper's native study on this machine."""
