"""Liveness without a clock or I/O: times come in as arguments."""
