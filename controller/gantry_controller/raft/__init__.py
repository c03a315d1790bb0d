"""Raft as pure functions of inputs: ticks, messages, proposals and reads in, one ``Ready`` out.

The theory is Diego Ongaro's thesis, *Consensus: Bridging Theory and Practice* (2014), cited below
as "thesis §"; the shape is etcd-io/raft's. Nothing in this package does I/O, knows a clock or draws
chance except from the generator it is given, so one seed replays a run exactly.

    messages   entries, hard state, and what peers say to each other      (thesis fig. 3.1)
    codec      messages as bytes
    log        the log in memory, and how much of it is durable           (thesis §3.5, §10.2.1)
    progress   the leader's view of one peer                              (thesis §10.2.1)
    state      everything a node knows, and the four roles it can take    (thesis §3.3)
    stepping   what a peer's message may do, judged before it is handled  (thesis §3.3, §4.2.3)
    election   pre-vote, vote, check-quorum, the hint that a leader died  (thesis §3.4, §9.6, §6.2)
    replication  appends and heartbeats, both sides; what is committed    (thesis §3.5, §3.6)
    members, changes  who takes part, and one change of that at a time    (thesis §4)
    transfer, priority  leadership is handed over, on request or by rank  (thesis §3.10)
    snapshot   what a snapshot stands for, as values                      (thesis §5.1)
    snapshots  compaction, and what a snapshot from a peer does to the log (thesis §5.2, §5.3)
    shipment   a snapshot's bytes to a peer, piece by piece
    reads, lease, follower_reads  linearizable reads without the log      (thesis §6.4)
    digests    do all members have the same state?
    admission  a node with an empty disk: when may it vote?
    ready      what leaves, and what of it is durable
    core       the interface
    after_persist  what a driver sends when

The rule that holds it together: whatever a peer may count (a vote, an acknowledgement) is sent only
after it is durable here (``after_persist``); everything else leaves at once.
"""
