"""The storage boundary between two processes (RIP-19): a front, and the store that it serves from.

``messages`` and ``link`` are what goes between them, ``connecting`` and ``store`` the front's side,
``serving`` and ``session`` the store's.
"""
