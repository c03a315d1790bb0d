"""Mapped topics: each queue is in one broker group at a time, and moves (ADR 0072)."""
