"""The replicated metadata: broker groups, masters, sync-state sets, topics.

Pure: an event and a state go in, a result comes out. No clock, no randomness, no I/O; whatever an
event's outcome depends on (who is alive, how far each member's log reaches, whether a waiting time
has passed) travels inside the event, so that every replica of the log computes the same state.
"""
