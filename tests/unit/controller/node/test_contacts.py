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


def test_the_log_knows_better_where_a_node_is_that_nobody_named() -> None:
    """It only knows where it listens; others go by the name that it was added under."""
    members = Membership((N1,), (N2,), ((N2, "c-1.c:2"),))
    settings = {N1: "c-0.c:1", N2: "10.0.0.7:2"}
    assert contacts(members, settings, N2) == {N1: "c-0.c:1", N2: "c-1.c:2"}
    assert contacts(Membership((N1, N2)), settings, N2) == settings
