"""Delayed messages and transactions, as plain data and decisions."""
