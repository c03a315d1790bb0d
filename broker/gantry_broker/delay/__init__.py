"""Delay levels and retries: messages that are parked now and delivered later.

``levels``, ``parked``, ``schedule`` and ``retries`` are pure; ``delivery`` is the shell.
"""
