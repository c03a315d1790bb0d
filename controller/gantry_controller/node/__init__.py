"""The Raft core in the real world: an event loop, sockets and a disk.

    options    what a node is told
    framing    bytes between peers: hello, frames, pings
    dialler    one outgoing connection, kept up
    listener   incoming connections
    links      all of them together
    disk       the log and its thread
    machine    what the node asks of the state machine
    snapshots  taken, loaded, installed, old ones removed
    shipping   a snapshot to a peer that needs it
    receiving  a snapshot from the leader
    traffic    both together
    ticker     time, without the time during which this process was stalled
    pending    callers that wait for their entry or their read
    status     what a node tells about itself
    node       ``RaftNode``: one pass per wake-up around ``raft.RaftCore``

One pass handles everything that arrived since the last one: proposals become one batch, messages
one write per socket, entries one sync. No task is made per request (that alone would cost a factor
of five), nothing is awaited inside a pass, and every queue has a bound.
"""

from gantry_controller.node.machine import StateMachine
from gantry_controller.node.node import RaftNode
from gantry_controller.node.options import NodeOptions
from gantry_controller.node.pending import ProposalDropped

__all__ = ["NodeOptions", "ProposalDropped", "RaftNode", "StateMachine"]
