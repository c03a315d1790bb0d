"""The Raft core in the real world: an event loop, sockets and a disk.

    options    what a node is told
    wire       bytes between peers: the handshake, and the framing of messages
    links      one connection to each peer, kept up; and the peers' connections to us
    waiting    proposals and reads that wait for their outcome
    node       ``RaftNode``: one pass per wake-up around ``raft.RaftCore``

The rules protected here: no task per request, one ``ready()`` per wake-up, whatever a peer may
count leaves only after it is durable, and every queue has a bound.
"""

from gantry_controller.node.node import RaftNode, StateMachine
from gantry_controller.node.options import NodeOptions
from gantry_controller.node.waiting import ProposalDropped

__all__ = ["NodeOptions", "ProposalDropped", "RaftNode", "StateMachine"]
