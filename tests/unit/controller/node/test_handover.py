"""Who asked for leadership to move hears of it when it has moved, or when the attempt is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gantry_controller.node.handover import Handovers
from gantry_controller.raft.errors import ChangeRefused, NotLeader
from gantry_controller.raft.state import Role
from gantry_protocol.types import NodeId, Term


def core(term: int, role: Role, leader: int | None, *, handing_over: bool = False) -> Any:
    """What is read of a core."""
    return SimpleNamespace(term=term, role=role, leader=leader, handing_over=handing_over)


def begun() -> tuple[Handovers, list[object]]:
    heard: list[object] = []
    handovers = Handovers()
    handovers.add(NodeId(2), Term(3), heard.append)
    return handovers, heard


def test_nothing_is_said_while_it_is_under_way() -> None:
    handovers, heard = begun()
    handovers.look(core(3, Role.LEADER, 1, handing_over=True))
    handovers.look(core(3, Role.FOLLOWER, 1))
    handovers.look(core(4, Role.FOLLOWER, None))
    assert heard == []


def test_the_next_leader_is_named_once_whoever_it_is() -> None:
    handovers, heard = begun()
    handovers.look(core(4, Role.FOLLOWER, 3))
    handovers.look(core(5, Role.FOLLOWER, 2))
    assert heard == [3]


def test_an_attempt_that_came_to_nothing_is_refused_in_words() -> None:
    handovers, heard = begun()
    handovers.look(core(3, Role.LEADER, 1))
    assert [type(one) for one in heard] == [ChangeRefused]


def test_a_node_that_ends_says_so_once() -> None:
    handovers, heard = begun()
    handovers.drop(NotLeader(None))
    handovers.drop(NotLeader(None))
    assert [type(one) for one in heard] == [NotLeader]
