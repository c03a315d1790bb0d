"""Decisions of the operator as plain data: recorded while it runs, decided again from a bundle."""
