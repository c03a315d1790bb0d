"""The storage boundary: its contract, and the stores that keep it."""
