"""The storage boundary between two processes (RIP-19): a broker, and the store that it works on.

``messages`` and ``link`` are what goes between them, ``connecting``, ``store`` and ``view`` the
broker's side, ``serving``, ``session`` and ``topic_ends`` the store's.
"""
