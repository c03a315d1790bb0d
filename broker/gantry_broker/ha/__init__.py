"""The replication link between the members of a group: its bytes and its sockets.

``wire`` turns the messages of ``gantry_broker.replica`` into bytes and back; ``link`` and ``links``
are the connections. No decision is made here.
"""
