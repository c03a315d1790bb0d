"""Histories: what clients asked and were told, and what was observed, on one monotonic clock."""
