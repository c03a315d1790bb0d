"""The name service: routes and topics from the same replicated state (RIP-18).

``routes`` turns the state into upstream's bodies, ``requests`` answers the codes, ``imports`` looks
after brokers of the old kind, which report themselves.
"""
