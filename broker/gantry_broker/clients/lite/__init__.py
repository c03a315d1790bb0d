"""Lite topics: subscriptions that are state of the log, pops by them, and their end (ADR 0088)."""
