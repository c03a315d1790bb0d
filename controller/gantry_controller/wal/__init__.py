"""The write-ahead log: what the Raft core must find again after a crash (thesis §3.8).

    format     bytes of segments, batches and records; pure
    replay     what a log's records amount to; pure
    recovery   bytes back to state, and the line between a torn write and damage; pure
    segments   files: create, read, cut
    wal        one log: recover it, append batches durably
    writer     the one thread that appends, with group commit

The rules protected here: what was confirmed as durable is found again or its loss is reported,
never passed over; nothing is found that was not written; a file of a newer format is refused.
"""
