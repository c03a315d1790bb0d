"""Where a member is reached: what a contact is, and whose word counts."""

from __future__ import annotations

import pytest
from gantry_controller.node.contacts import contacts, raft_address
from gantry_controller.raft.members import Membership
from gantry_protocol.types import NodeId

N1, N2, N3 = NodeId(1), NodeId(2), NodeId(3)


@pytest.mark.parametrize(
    ("contact", "address"),
    [
        ("c-0.c:9879:9878:9880", "c-0.c:9879"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("[::1]:9879:9878", "[::1]:9879"),
        ("c-0.c", None),
        ("::1:9879", None),
        ("c-0:x", None),
        ("", None),
    ],
)
def test_the_first_port_is_rafts(contact: str, address: str | None) -> None:
    assert raft_address(contact) == address


def test_the_settings_come_before_the_log() -> None:
    members = Membership((N1, N2), (N3,), ((N1, "old:1"), (N3, "log:3")))
    assert contacts(members, {N1: "new:1", NodeId(9): "elsewhere:9"}) == {N1: "new:1", N3: "log:3"}
