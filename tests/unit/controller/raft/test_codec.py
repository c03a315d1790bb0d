"""Peers' bytes: every message comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from gantry_controller.raft.codec import decode, encode
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.members import Membership, encode_members
from gantry_controller.raft.messages import (
    LEASE_OFF,
    LEASE_ON,
    Append,
    AppendReply,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    Message,
    PristineQuery,
    PristineReply,
    ReadIndexReply,
    ReadIndexRequest,
    VoteReply,
    VoteRequest,
    make_entry,
)
from gantry_protocol.types import Index, NodeId, Term
from hypothesis import given
from hypothesis import strategies as st

node = st.integers(1, 2**32 - 1).map(NodeId)
u64 = st.integers(0, 2**63)
fixed = st.one_of(
    st.builds(
        AppendReply,
        source=node,
        target=node,
        term=u64.map(Term),
        index=u64.map(Index),
        rejected=st.booleans(),
        hint_index=u64.map(Index),
        hint_term=u64.map(Term),
        round=u64,
        blank=u64,
    ),
    st.builds(Heartbeat, node, node, u64.map(Term), u64.map(Index), u64),
    st.builds(HeartbeatReply, node, node, u64.map(Term), u64, u64),
    st.builds(VoteRequest, node, node, u64.map(Term), u64.map(Index), u64.map(Term), st.booleans()),
    st.builds(VoteReply, node, node, u64.map(Term), st.booleans(), st.booleans()),
    st.builds(PristineQuery, node, node, u64),
    st.builds(PristineReply, node, node, u64, st.booleans()),
    st.builds(ReadIndexRequest, node, node, u64.map(Term), u64),
    st.builds(ReadIndexReply, node, node, u64.map(Term), u64, u64.map(Index)),
)


COMMANDS = {
    EntryKind.COMMAND: st.binary(max_size=50),
    EntryKind.NOOP: st.just(b""),
    EntryKind.LEASE: st.sampled_from([LEASE_ON, LEASE_OFF]),
    EntryKind.MEMBERS: st.just(encode_members(Membership((NodeId(1), NodeId(2)), (NodeId(4),)))),
}


@st.composite
def appends(draw: st.DrawFn) -> Append:
    prev_index = draw(st.integers(0, 2**40))
    terms = sorted(draw(st.lists(st.integers(1, 2**40), min_size=1, max_size=6)))
    entries = tuple(
        make_entry(kind, Term(term), Index(prev_index + place), draw(COMMANDS[kind]))
        for place, term in enumerate(terms[1:], start=1)
        for kind in [draw(st.sampled_from(EntryKind))]
    )
    return Append(
        source=draw(node),
        target=draw(node),
        term=Term(terms[-1]),
        prev_index=Index(prev_index),
        prev_term=Term(terms[0]),
        commit=Index(draw(u64)),
        round=draw(u64),
        admit=draw(u64),
        entries=entries,
    )


@given(message=st.one_of(fixed, appends()))
def test_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@given(message=st.one_of(fixed, appends()), data=st.data())
def test_shortened_or_lengthened_bytes_are_refused(message: Message, data: st.DataObject) -> None:
    body = encode(message)
    cut = data.draw(st.integers(0, len(body) - 1))
    for wrong in (body[:cut], body + b"\x00"):
        with pytest.raises(MessageError):
            decode(wrong)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(body: bytes) -> None:
    try:
        message = decode(body)
    except MessageError:
        return
    assert decode(encode(message)) == message


def append(prev_index: int, prev_term: int, *entries: tuple[int, int], term: int = 9) -> bytes:
    made = tuple(make_entry(EntryKind.COMMAND, Term(t), Index(i), b"v") for i, t in entries)
    return encode(
        Append(
            source=NodeId(1),
            target=NodeId(2),
            term=Term(term),
            prev_index=Index(prev_index),
            prev_term=Term(prev_term),
            commit=Index(0),
            round=0,
            admit=0,
            entries=made,
        )
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(append(3, 1, (5, 1)), id="a gap"),
        pytest.param(append(3, 1, (4, 1), (4, 1)), id="an index twice"),
        pytest.param(append(3, 2, (4, 1)), id="a term that falls"),
        pytest.param(append(3, 1, (4, 10)), id="an entry of a later term than the leader's"),
    ],
)
def test_entries_that_cannot_follow_each_other_are_refused(body: bytes) -> None:
    with pytest.raises(MessageError, match="is due"):
        decode(body)


def test_entry_of_an_unknown_kind_is_refused() -> None:
    body = bytearray(append(3, 1, (4, 1)))
    body[-18] = 99
    with pytest.raises(MessageError, match="unknown kind 99"):
        decode(bytes(body))


def test_a_count_beyond_the_message_costs_nothing() -> None:
    body = bytearray(append(3, 1))
    body[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(MessageError):
        decode(bytes(body))
