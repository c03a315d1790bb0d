"""Consumption by POP: the broker hands out messages and knows which are in flight (ADR 0078)."""
