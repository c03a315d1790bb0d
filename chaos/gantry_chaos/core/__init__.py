"""Faults as plain data: what they are and when, commands, packet rules."""
