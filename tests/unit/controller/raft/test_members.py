"""A membership counts its voters and nobody else."""

from __future__ import annotations

import pytest
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.members import MemberHistory, Membership, encode_members
from gantry_controller.raft.messages import EntryKind, make_entry, parse_entry
from gantry_protocol.types import Index, NodeId, Term

N1, N2, N3, N4, N5 = map(NodeId, range(1, 6))


@pytest.mark.parametrize(
    ("values", "reached"),
    [
        ({N1: 7, N2: 5, N3: 3}, 5),
        ({N1: 7, N2: 5}, 5),
        ({N1: 7}, 0),
        ({N1: 7, N4: 9, N5: 9}, 0),
        ({N1: 7, N2: 5, N4: 9, N5: 9}, 5),
    ],
    ids=["all", "one may not be counted", "one alone", "learners", "learners beside voters"],
)
def test_a_majority_of_the_voters_reaches_a_value(values: dict[NodeId, int], reached: int) -> None:
    assert Membership((N1, N2, N3), (N4, N5)).reached(values) == reached


@pytest.mark.parametrize(
    ("nodes", "decides"),
    [((N1,), False), ((N1, N4, N5), False), ((N1, N3), True)],
    ids=["one", "one with learners", "two"],
)
def test_only_voters_decide(nodes: tuple[NodeId, ...], decides: bool) -> None:
    assert Membership((N1, N2, N3), (N4, N5)).decides(nodes) is decides


def test_a_history_follows_the_log() -> None:
    first, second, third = Membership((N1,)), Membership((N1,), (N2,)), Membership((N1, N2))
    history = MemberHistory(Index(0), first)
    history.append(Index(3), second)
    history.append(Index(5), third)
    assert [history.at(Index(i)) for i in (0, 2, 3, 4, 5, 9)] == [
        first,
        first,
        second,
        second,
        third,
        third,
    ]
    assert not history.keep(Index(5))
    assert history.keep(Index(4))
    assert (history.changed_index, history.current) == (3, second)


def test_a_history_forgets_what_a_snapshot_covers() -> None:
    history = MemberHistory(Index(0), Membership((N1,)))
    history.append(Index(3), Membership((N1,), (N2,)))
    history.append(Index(5), Membership((N1, N2)))
    history.release(Index(4))
    assert history.at(Index(4)) == Membership((N1,), (N2,))
    assert not history.keep(Index(5))
    assert history.keep(Index(3))
    assert not history.keep(Index(0)), "what a snapshot holds is committed"


@pytest.mark.parametrize(
    "command",
    [
        b"",
        b"\xc1",
        encode_members(Membership(())),
        encode_members(Membership((N1, N1))),
        encode_members(Membership((N1,), (N1,))),
        encode_members(Membership((NodeId(0), N1))),
        encode_members(Membership(tuple(map(NodeId, range(1, 40))))),
        encode_members(Membership((N1,), (), ((N1, "x" * 301),))),
    ],
    ids=["empty", "no msgpack", "no voter", "twice", "both", "number 0", "too many", "too long"],
)
def test_a_membership_no_leader_makes_is_refused(command: bytes) -> None:
    with pytest.raises(MessageError, match="changes the members"):
        parse_entry(make_entry(EntryKind.MEMBERS, Term(1), Index(1), command).encoded)
