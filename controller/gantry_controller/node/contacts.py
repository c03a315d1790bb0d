"""Addresses of members, as text that travels in the log: ``host:raft[:remoting[:http]]``.

The log and the hellos carry what ``--peers`` says behind the number; Raft's own connections need
the first port of it. What the settings say about a member comes before what the log says: an
address is never identity, and a move is a change of settings.
"""

import re

from gantry_protocol.types import NodeId

from gantry_controller.raft.members import Membership

_CONTACT = re.compile(r"^(\[[^\]]+\]|[^:\[\]]+):(\d{1,5})(?::\d{1,5}){0,2}$")


def raft_address(contact: str) -> str | None:
    """The ``host:port`` for peers in ``contact``; None if that is no contact."""
    match = _CONTACT.match(contact)
    return None if match is None else f"{match.group(1)}:{match.group(2)}"


def contacts(
    members: Membership, settings: dict[NodeId, str], unnamed: NodeId | None = None
) -> dict[NodeId, str]:
    """The contact of each member, as far as one is known, ascending.

    Args:
        members: who takes part, and what the log says of where they are.
        settings: what the settings say.
        unnamed: the node whose contact there is only where it listens, since nobody named it; the
            log's word on it goes before, which is what all others go by.
    """
    in_log = dict(members.addresses)
    stated = {**in_log, **settings}
    if unnamed in in_log:
        stated[unnamed] = in_log[unnamed]
    return {node: stated[node] for node in members.nodes if node in stated}
