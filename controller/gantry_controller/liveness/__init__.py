"""Liveness of brokers by this node's own clock, and the elections that follow from it.

Nothing here is replicated: every controller hears every broker's heartbeats and judges for itself,
and only the leader acts, by proposing an ordinary election event that carries what it knew.
``core`` knows no clock and does no I/O: times (float seconds of any monotonic clock) come in as
arguments. ``prober`` and ``watchman`` are its shells.
"""
