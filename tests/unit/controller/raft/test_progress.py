"""The leader's view of a peer: probing, streaming, and which answers are too old to count."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from gantry_controller.raft import admission
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.quorum import quorum_size, reached_by_quorum
from gantry_protocol.types import Index


def streaming(match: int, *sent: int) -> Progress:
    progress = Progress(Index(match + 1))
    progress.sent(Index(match))
    progress.accepted(Index(match))
    for last in sent:
        progress.sent(Index(last))
    assert progress.streaming
    return progress


def test_probes_one_at_a_time_until_one_is_accepted() -> None:
    progress = Progress(Index(8))
    assert progress.may_send(4)
    progress.sent(Index(9))
    assert not progress.may_send(4)
    assert progress.next_index == 8
    assert progress.rejected(Index(7), Index(3), 0)
    assert (progress.next_index, progress.may_send(4)) == (4, True)
    progress.sent(Index(3))
    assert progress.accepted(Index(3))
    assert (progress.streaming, progress.match_index, progress.next_index) == (True, 3, 4)


def test_streams_up_to_the_window() -> None:
    progress = streaming(0, 1, 2, 3)
    assert not progress.may_send(3)
    assert progress.next_index == 4
    progress.accepted(Index(2))
    assert list(progress.inflight) == [3]
    assert progress.may_send(3)


def test_rejection_while_streaming_begins_again_behind_match() -> None:
    progress = streaming(5, 6, 7)
    assert progress.rejected(Index(6), Index(5), 0)
    assert (progress.streaming, progress.next_index, len(progress.inflight)) == (False, 6, 0)


@pytest.mark.parametrize("prev_index", [3, 5])
def test_rejection_of_what_is_known_to_match_is_old(prev_index: int) -> None:
    progress = streaming(5, 6)
    assert not progress.rejected(Index(prev_index), Index(0), 0)
    assert progress.streaming


def test_rejection_of_another_probe_is_old() -> None:
    progress = Progress(Index(8))
    assert not progress.rejected(Index(5), Index(1), 0)
    assert progress.next_index == 8


def test_rejections_of_a_lost_window_count_once() -> None:
    """Each of the others would send the next window in vain."""
    progress = streaming(5, 6, 7, 8)
    assert progress.rejected(Index(6), Index(5), 10)
    progress.round_valid = 11
    assert not progress.rejected(Index(7), Index(5), 10)
    progress.sent(Index(5))
    progress.accepted(Index(5))
    progress.sent(Index(6))
    assert not progress.rejected(Index(8), Index(5), 10)
    assert progress.streaming
    assert progress.rejected(Index(6), Index(5), 11)


def test_probe_never_goes_below_match() -> None:
    progress = Progress(Index(8))
    progress.match_index = Index(4)
    assert progress.rejected(Index(7), Index(1), 0)
    assert progress.next_index == 5


def test_late_acceptance_of_less_is_no_news() -> None:
    progress = streaming(5, 6, 7)
    assert progress.accepted(Index(7))
    assert not progress.accepted(Index(6))
    assert (progress.match_index, progress.next_index) == (7, 8)


def test_a_peer_that_lost_its_disk_is_unknown_again() -> None:
    progress = streaming(5, 6, 7)
    progress.round_acked = 9
    progress.forget()
    progress.blank = 77
    assert (progress.match_index, progress.next_index, progress.round_acked) == (0, 1, 0)
    assert not progress.counts
    progress.match_index = Index(5)  # a late word of its past life
    progress.rejected(Index(5), Index(0), 0)
    assert progress.match_index == 4, "it does not hold what it rejects"


@pytest.mark.parametrize(("members", "size"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (9, 5)])
def test_two_quorums_always_share_a_member(members: int, size: int) -> None:
    assert quorum_size(members) == size
    assert 2 * size > members


@pytest.mark.parametrize(
    ("values", "members", "expected"),
    [
        ([5], 1, 5),
        ([5, 3, 1], 3, 3),
        ([5, 3], 3, 3),
        ([5], 3, 0),
        ([1, 9, 9, 1, 5], 5, 5),
        ([9, 9], 5, 0),
    ],
)
def test_reached_by_quorum(values: list[int], members: int, expected: int) -> None:
    """Members whose word may not be counted are left out of the values, not of the members."""
    assert reached_by_quorum(values, members) == expected


def test_what_was_said_before_a_peer_counts_does_not_count_later() -> None:
    """Seed 400035 of the simulated shipments: an entry was committed on the leader's word alone."""
    peer = Progress(Index(31))
    peer.blank, peer.admit_index, peer.match_index = 7, Index(19), Index(30)
    leader = Mock()
    assert admission.judge(leader, peer, 0, 27)
    assert (peer.counts, peer.match_index) == (True, 27)
