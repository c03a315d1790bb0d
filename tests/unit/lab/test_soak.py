"""What a soak says, and what among it means that a promise was broken."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gantry_cli.client.ledger import DeliveryAccount
from gantry_lab.soak.views import (
    Count,
    MastershipView,
    SoakOutcome,
    SoakState,
    group_of,
    line,
    outcome_of,
    quorum_of,
    sentence,
)
from gantry_protocol.admin import GroupView, MemberView, PeerView, QuorumView

CLEAN = DeliveryAccount(100, 100, 0, 100, 0, 2, 2, 0)
QUIET = SoakState(
    now_s=50.0,
    sending=True,
    started=True,
    acknowledged=7,
    consumed=6,
    outstanding=1,
    last_ack_s=49.9,
    flowing=True,
    commits_flowing=False,
    illegal_offsets=0,
    last_trouble="the old master is gone.",
    error=None,
    group=None,
    quorum=None,
    masterships=[MastershipView(3, 1)],
    conflicts=[],
)


def judged(
    verdict: DeliveryAccount = CLEAN,
    *,
    illegal_offsets: int = 0,
    conflicts: tuple[int, ...] = (),
    error: str | None = None,
    unseen: str | None = None,
) -> SoakOutcome:
    return outcome_of(
        Count(verdict, verdict.clean, verdict.lost),
        illegal_offsets=illegal_offsets,
        conflicts=list(conflicts),
        longest_gap_ms=412.3,
        last_trouble="Nobody listens.",
        error=error,
        unseen=unseen,
    )


def test_kept_promises_are_clean() -> None:
    outcome = judged()
    assert outcome.clean
    assert outcome.reasons == []
    assert sentence(outcome) == (
        "100 messages acknowledged, 100 consumed, 0 lost, 2 twice "
        "(2 of them after a lost answer); longest gap 412 ms."
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"acknowledged": 0}, "No message was acknowledged. Nobody listens."),
        ({"lost": 3}, "Acknowledged, and never consumed: 3 messages."),
        (
            {"duplicated": 6},
            "Consumed twice, without a lost answer that explains it: 4 messages.",
        ),
        ({"late": 5}, "Consumed again long after it was dealt with: 5 messages."),
        ({"misplaced": 1}, "Not found where it was acknowledged: 1 messages."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_broken_promise_has_its_sentence(changes: dict[str, int], reason: str) -> None:
    outcome = judged(msgspec.structs.replace(CLEAN, **changes))
    assert outcome.reasons == [reason]
    assert not outcome.clean


@pytest.mark.parametrize(
    ("noticed", "reason"),
    [
        (
            {"illegal_offsets": 2},
            "The consumer was told that its offset is not legal: 2 times.",
        ),
        ({"conflicts": (4, 9)}, "Two masters in one epoch: 4, 9."),
        ({"error": "a lane broke."}, "The soak itself broke: a lane broke."),
        (
            {"unseen": "Nobody answered."},
            "Nothing was heard of the watched group. Nobody answered.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_verdict_does_not_cover_fails_too(noticed: dict[str, Any], reason: str) -> None:
    outcome = judged(**noticed)
    assert outcome.reasons == [reason]
    assert not outcome.clean


def test_json_names_are_camel_case() -> None:
    state = json.loads(msgspec.json.encode(QUIET))
    assert state["lastAckS"] == 49.9
    assert state["masterships"] == [{"epoch": 3, "brokerId": 1}]
    assert state["error"] is None
    verdict = json.loads(msgspec.json.encode(judged()))["verdict"]
    assert verdict["duplicatedAfterLostAnswer"] == 2
    assert verdict["late"] == 0


def member(broker_id: int, **options: Any) -> MemberView:
    return MemberView(
        broker_id=broker_id, address="a:1", pod_uid=f"u{broker_id}", in_sync=True, **options
    )


def group(master: int | None, *members: MemberView) -> GroupView:
    return GroupView(
        cluster="gantry",
        name="orders",
        replicas=2,
        master_broker_id=master,
        master_epoch=4,
        sync_state_set=[2, 1],
        sync_state_set_epoch=1,
        members=list(members),
    )


def test_group_is_told_with_the_pod_of_its_master() -> None:
    found = group_of(group(2, member(1, alive=True), member(2, alive=True)), 0.12345)
    assert found is not None
    assert (found.master_pod_uid, found.master_epoch, found.settled) == ("u2", 4, True)
    assert found.sync_state_set == [1, 2]
    assert found.stale_s == 0.123


@pytest.mark.parametrize(
    ("master", "second"),
    [
        (None, member(2, alive=True)),
        (1, member(2, alive=False)),
        (1, member(2, alive=True, draining=True)),
    ],
    ids=["no master", "dead", "draining"],
)
def test_group_that_lacks_somebody_is_not_settled(master: int | None, second: MemberView) -> None:
    found = group_of(group(master, member(1, alive=True), second), 0.0)
    assert found is not None
    assert not found.settled
    assert found.master_pod_uid == (None if master is None else "u1")


def test_group_and_quorum_that_were_never_heard_of_are_null() -> None:
    assert group_of(None, 99.0) is None
    assert quorum_of(None) is None


def test_quorum_is_whole_when_its_leader_hears_everybody() -> None:
    def heard_ms(age: int | None) -> bool:
        view = QuorumView(
            cluster_uid="u",
            node_id=1,
            name="c-0",
            term=1,
            role="leader",
            leader_name="c-0",
            commit_index=1,
            applied_index=1,
            peers=[
                PeerView(id=1, name="c-0", address="a:1"),
                PeerView(id=2, name="c-1", address="b:1", last_contact_ms=age),
            ],
        )
        found = quorum_of(view)
        assert found is not None
        assert found.leader_name == "c-0"
        return found.whole

    assert heard_ms(60)
    assert not heard_ms(5000)
    assert not heard_ms(None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "7 acknowledged, 6 consumed, longest gap 80 ms"),
        ({"started": False}, "waiting for the topic: the old master is gone."),
        (
            {"last_ack_s": 45.0, "last_trouble": "gone."},
            "7 acknowledged, 6 consumed, longest gap 80 ms; nothing for 5 s: gone.",
        ),
        (
            {"last_ack_s": None, "last_trouble": ""},
            "7 acknowledged, 6 consumed, longest gap 80 ms; no answer yet",
        ),
    ],
    ids=["flowing", "no topic", "quiet", "nothing yet"],
)
def test_line_says_why_nothing_comes(changes: dict[str, Any], words: str) -> None:
    assert line(msgspec.structs.replace(QUIET, **changes), 80.0) == words
