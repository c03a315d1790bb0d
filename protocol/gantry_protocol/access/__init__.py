"""Access of clients: users, their rules, and the decision on what a request needs (ADR 0082).

Pure: brokers, controllers and tools share it. What each request needs is in ``remoting.demands``,
who has signed it in ``remoting.admission``.
"""
