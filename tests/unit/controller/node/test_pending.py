"""Callers that wait are answered once: with their own result, or told that it is unknown."""

from __future__ import annotations

from gantry_controller.node.pending import ProposalDropped, Proposals, Reads
from gantry_controller.raft.errors import NotLeader
from gantry_controller.raft.reads import ReadMode, ReadState
from gantry_protocol.types import Index


def test_each_caller_is_found_by_its_index() -> None:
    proposals = Proposals()
    heard: list[tuple[str, int]] = []
    proposals.add(
        Index(5), [lambda at: heard.append(("five", at)), lambda at: heard.append(("six", at))]
    )
    proposals.add(Index(9), [lambda at: heard.append(("nine", at))])
    for number in range(4, 10):
        done = proposals.take(Index(number))
        if done is not None:
            done(number)
    assert heard == [("five", 5), ("six", 6), ("nine", 9)]
    assert len(proposals) == 0


def test_dropped_callers_are_told_once_and_may_propose_again() -> None:
    proposals = Proposals()
    heard: list[object] = []

    def again(outcome: object) -> None:
        heard.append(outcome)
        proposals.add(Index(7), [heard.append])

    proposals.add(Index(5), [again])
    error = ProposalDropped()
    proposals.drop(error)
    assert heard == [error]
    assert len(proposals) == 1


def test_reads_wait_for_their_index() -> None:
    reads = Reads()
    reads.open = 3
    heard: list[object] = []
    served = dict.fromkeys(ReadMode, 0)
    first = ReadState(Index(3), [heard.append], ReadMode.LEASE)
    reads.add([first, ReadState(Index(5), [heard.append] * 2)])
    reads.serve(Index(2), served)
    assert set(served.values()) == {0}
    reads.serve(Index(4), served)
    assert served == {ReadMode.LEADER: 0, ReadMode.LEASE: 1, ReadMode.FOLLOWER: 0}
    reads.drop(NotLeader(None))
    assert heard[0] is None
    assert reads.open == 0
    assert [type(outcome) for outcome in heard[1:]] == [NotLeader, NotLeader]
