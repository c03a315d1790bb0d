"""The demonstration fails when it should, and its words follow the controllers' views."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from gantry_cli.client.ledger import DeliveryAccount
from gantry_cli.demo.report import DemoAccount, TierAccount, Uploader, account
from gantry_cli.demo.stage import DemoStage
from gantry_cli.demo.view import LiveScreen, sparkline
from gantry_cli.trial.history import Mastership
from gantry_cli.trial.narrate import changes, settled, whole
from gantry_protocol.admin import GroupView, MemberView, PeerView, QuorumView
from msgspec.structs import replace
from rich.console import Console

SOUND = TierAccount(
    uploaders=[
        Uploader(epoch=epoch, broker=f"orders-broker-{epoch % 2}", version=v, from_offset=v * 100)
        for epoch, v in ((1, 1), (2, 5), (3, 9), (4, 12))
    ],
    versions=14,
    packs=10,
    records=100,
    committed_offset=4000,
    load_end_offset=4000,
    confirm_offset=4100,
    refused=["pack/x"],
    findings=[],
)
GOOD = account(
    DeliveryAccount(100, 100, 0, 100, 0, 0, 0, 0),
    ready_s=5.123,
    write_gap_ms=412.26,
    handover_gap_ms=80.0,
    freeze_gap_ms=2600.0,
    illegal_offsets=0,
    masters=[Mastership(1, 1), Mastership(2, 2), Mastership(3, 1), Mastership(4, 2)],
    master_changes=3,
    conflicts=[],
    tier=SOUND,
    duration_s=33.33,
)


def test_good_run_has_no_failures_and_one_line() -> None:
    assert GOOD.failures() == []
    word, _, figures = GOOD.line().partition(" ")
    assert word == "DEMO"
    read = json.loads(figures)
    assert read["write_gap_ms"] == 412.3
    assert read["masters"][2] == {"epoch": 3, "broker_id": 1}
    assert read["tier"]["uploaders"][1]["epoch"] == 2
    assert (read["tier"]["versions"], read["tier"]["committedOffset"]) == (14, 4000)
    assert read["tier"]["findings"] == []
    assert {
        "ready_s",
        "write_gap_ms",
        "handover_gap_ms",
        "acknowledged",
        "consumed",
        "lost",
        "duplicated",
    } <= read.keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"acknowledged": 0}, "no message"),
        ({"write_gap_ms": None}, "after the kill"),
        ({"handover_gap_ms": None}, "after the hand-over"),
        ({"lost": 1}, "1 acknowledged messages were lost"),
        ({"duplicated": 3}, "3 messages are stored twice"),
        ({"misplaced": 1}, "not where"),
        ({"illegal_offsets": 1}, "not legal"),
        ({"epochs_with_two_masters": [7]}, "two masters in epochs"),
        ({"master_changes": 2}, "moved 2 times"),
        ({"freeze_gap_ms": None}, "after the freeze"),
        ({"tier": replace(SOUND, findings=["fault T4: a"])}, "the tier has faults: fault T4: a"),
        ({"tier": replace(SOUND, committed_offset=3999)}, "the tier ends at 3999"),
        ({"tier": replace(SOUND, uploaders=SOUND.uploaders[:3])}, "last master did not upload"),
        ({"masters": GOOD.masters[1:]}, "claimed for epochs [1, 2, 3, 4], masters served in"),
        ({"tier": replace(SOUND, refused=[])}, "no upload of the frozen master was refused"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_broken_promise_fails_the_run(change: dict[str, object], words: str) -> None:
    broken: DemoAccount = replace(GOOD, **change)
    assert len(broken.failures()) == 1
    assert words in broken.failures()[0]


def member(broker_id: int, **facts: object) -> MemberView:
    known: dict[str, object] = {
        "broker_id": broker_id,
        "address": f"10.0.0.{broker_id}:10911",
        "pod_name": f"orders-broker-{broker_id - 1}",
        "incarnation": f"i{broker_id}",
        "alive": True,
        "in_sync": True,
    }
    return MemberView.model_validate(known | facts)


def group(*members: MemberView, **facts: object) -> GroupView:
    known: dict[str, object] = {
        "cluster": "gantry",
        "name": "orders",
        "replicas": 3,
        "master_broker_id": 1,
        "master_epoch": 4,
        "sync_state_set": [one.broker_id for one in members if one.in_sync],
        "sync_state_set_epoch": 9,
        "members": members,
    }
    return GroupView.model_validate(known | facts)


def test_first_reading_introduces_everybody() -> None:
    assert changes(None, group(member(1), member(2))) == [
        "orders-broker-0 registered as broker 1",
        "orders-broker-1 registered as broker 2",
        "orders-broker-0 is master in epoch 4",
    ]


def test_equal_readings_say_nothing() -> None:
    assert changes(group(member(1)), group(member(1, max_offset=77))) == []


def test_failover_is_told() -> None:
    before = group(member(1), member(2))
    after = group(
        member(1, alive=False, in_sync=False), member(2), master_broker_id=2, master_epoch=5
    )
    assert changes(before, after) == [
        "orders-broker-0 is gone, say the controllers",
        "orders-broker-1 is master in epoch 5",
        "in-sync set is now orders-broker-1",
    ]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"draining": True}, "drains"),
        ({"incarnation": "other"}, "back as a new process"),
        ({"alive": False}, "is gone"),
    ],
)
def test_member_changes_are_told(facts: dict[str, object], words: str) -> None:
    told = changes(group(member(1), member(2)), group(member(1), member(2, **facts)))
    assert len(told) == 1
    assert words in told[0]


def test_group_is_settled_only_with_master_and_all_replicas_in_sync() -> None:
    whole = group(member(1), member(2), member(3))
    assert settled(whole)
    assert not settled(None)
    assert not settled(group(member(1), member(2)))
    assert not settled(group(member(1), member(2), member(3), master_broker_id=None))
    assert not settled(group(member(1), member(2), member(3, in_sync=False)))
    assert not settled(group(member(1), member(2), member(3, draining=True)))


def test_sparkline_shows_a_gap_as_a_gap() -> None:
    assert sparkline([8, 0, 4, 1]) == "█ ▄▁"
    assert sparkline([0, 0]) == "  "


def test_live_screen_draws_without_and_with_a_group() -> None:
    class Observed:
        quorum = None
        stale_s = 0.0
        group = group(member(1, max_offset=10, confirm_offset=7), member(2, alive=False))

    stage = DemoStage()
    stage.did("killed orders-broker-1")
    stage.measured("write gap", 412.0)
    console = Console(width=100, record=True, file=StringIO())
    console.print(LiveScreen(stage))
    stage.observer = Observed()  # type: ignore[assignment]  # only what the screen reads
    console.print(LiveScreen(stage))
    drawn = console.export_text()
    for words in ("waiting for the broker group", "MASTER", "gone", "412 ms", "epoch 4"):
        assert words in drawn


@pytest.mark.parametrize(
    ("contacts", "expected"),
    [
        pytest.param((None, 40, 60), True, id="the leader hears both others"),
        pytest.param((None, 40, None), False, id="one was never heard"),
        pytest.param((None, 40, 2000), False, id="one is silent"),
    ],
)
def test_quorum_is_whole_only_when_every_other_controller_is_heard(
    contacts: tuple[int | None, ...], expected: bool
) -> None:
    peers = [
        PeerView(id=n, name=f"c-{n}", address=f"c-{n}:9878", last_contact_ms=contact)
        for n, contact in enumerate(contacts, start=1)
    ]
    quorum = QuorumView(
        cluster_uid="u", node_id=1, name="c-1", term=1, role="leader", commit_index=1,
        applied_index=1, peers=peers,
    )  # fmt: skip
    assert whole(quorum) is expected
    assert not whole(None)
