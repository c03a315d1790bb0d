"""A small asynchronous RocketMQ client: name servers, a producer, a pull consumer, a ledger.

It exists to drive Gantry's own commands, and to count honestly. What it refuses to do: hide an
unknown outcome. A send whose answer was lost is tried again under the same unique key, and the
ledger remembers that a second copy of it may therefore exist.
"""
