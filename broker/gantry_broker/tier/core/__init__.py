"""Decisions about a broker's tier, without I/O, clock or randomness.

``role`` is the upload role as a machine of events and effects, ``reading`` the index for readers.
"""
