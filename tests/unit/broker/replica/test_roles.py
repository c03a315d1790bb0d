"""Roles: one master per epoch, incarnations, H4, epochs that never fall, refusals."""

from __future__ import annotations

import pytest
from gantry_broker.replica import ControllerView, Limits, Role, StoredState
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.following import Stage
from gantry_broker.replica.messages import Append, Farewell, Hello, Truncate
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from msgspec.structs import replace
from support.replicas import Disk, Group, Node, entries, lineage


def test_nothing_is_served_before_epoch_and_start_are_durable() -> None:
    """H4."""
    group = Group(1)
    group[1].saving = False
    group.elect(1)
    assert group[1].core.role is Role.PROMOTING
    assert group[1].core.serving is None
    group[1].save()
    assert group[1].core.role is Role.MASTER
    assert group[1].disk.state.lineage == lineage((1, 0))
    assert group[1].asked(fx.Promoted) == [fx.Promoted(Epoch(1), Offset(0))]


def test_replicas_that_call_during_the_promotion_wait_for_it() -> None:
    group = Group(2)
    group[1].saving = False
    group.elect(1)
    group.tick(40)
    assert group[2].core.following is not None
    assert group[2].core.following.stage is Stage.GREETING
    group[1].save()
    group.run()
    assert group[2].core.streaming


def test_a_caller_that_has_hung_up_is_not_waited_for() -> None:
    group = Group(2)
    group[1].saving = False
    group.elect(1)
    group.tick(40)
    group.unreachable = {2}
    group.cut_links(2)
    group[1].save()
    master = group[1].core.master
    assert master is not None
    assert master.links() == []


def test_a_truncation_by_another_start_of_the_master_is_refused() -> None:
    group = Group(2)
    group.held = {2}
    group.elect(1)
    following = group[2].core.following
    assert following is not None
    assert following.link is not None
    assert following.stage is Stage.GREETING
    imposter = Truncate(
        epoch=Epoch(1),
        incarnation="other",
        point=Offset(0),
        entry=EpochEntry(Epoch(1), Offset(0)),
    )
    group[2].step(ev.Received(following.link, imposter))
    assert following.link is None


def test_an_epoch_of_an_earlier_start_is_never_served() -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    view = group.view(1)
    reborn = group.restart(1, "2")
    reborn.step(ev.ViewLearned(view))
    group.tick(400)
    assert reborn.core.role is Role.IDLE
    assert reborn.asked(fx.AskElection)
    assert not reborn.asked(fx.Promoted)
    group.elect(1)
    assert reborn.core.role is Role.MASTER
    assert reborn.facts.lineage == lineage((1, 0), (2, 3))


def test_elections_are_asked_for_at_a_measured_pace_and_not_when_leaving() -> None:
    group = Group(1)
    group.tell(None, [1])
    group.tick(1_000)
    assert 3 <= len(group[1].asked(fx.AskElection)) <= 5
    leaving = Group(1)
    leaving[1].step(ev.DrainRequested())
    leaving.tell(None, [1])
    leaving.tick(1_000)
    assert leaving[1].asked(fx.AskElection) == []


def test_views_of_older_epochs_are_ignored() -> None:
    group = Group(3)
    group.elect(1)
    old = group.view(1)
    group.elect(2)
    for number in (1, 2, 3):
        group[number].step(ev.ViewLearned(old))
    assert [group[number].core.role for number in (1, 2, 3)] == [
        Role.FOLLOWING,
        Role.MASTER,
        Role.FOLLOWING,
    ]


def test_a_controller_that_lost_its_memory_is_told_off() -> None:
    disk = Disk(state=StoredState(Epoch(5), lineage((5, 0)), Offset(0)))
    group = Group(1)
    node = Node(group, 1, disk)
    node.step(ev.ViewLearned(ControllerView(master_epoch=Epoch(4), master_id=BrokerId(2))))
    assert node.core.role is Role.STUCK
    (stuck,) = node.asked(fx.Stuck)
    assert isinstance(stuck, fx.Stuck)
    assert stuck.code == "ControllerBehind"
    assert "epoch 5" in stuck.sentence
    assert node.core.step(ev.Tick(), 9_999) == []


def test_a_demoted_master_forgets_its_replicas_and_follows() -> None:
    group = Group(3)
    group.elect(1)
    group.elect(2)
    assert group[1].asked(fx.Demoted) == [fx.Demoted(Epoch(1))]
    assert group[1].core.streaming
    group.write(2, b"abc")
    group.tick(200)
    assert group[1].facts.confirm == 3


def test_an_unreplicated_tail_is_cut_from_a_demoted_master() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"abc")
    group.held = {2, 3}
    group.write(1, b"lost")
    group.held = set()
    group.elect(2)
    assert group[1].disk.log == b"abc"
    assert group[1].facts.lineage == lineage((1, 0), (2, 3))
    assert group[1].disk.state.lineage == lineage((1, 0), (2, 3))


def test_the_cut_and_the_epoch_are_durable_before_the_first_acknowledgement() -> None:
    """H8."""
    group = Group(2)
    group.elect(1)
    group.held = {2}
    group.write(1, b"lost")
    group.held = set()
    group[1].saving = group[1].cutting = False
    group.elect(2, {1, 2})
    following = group[1].core.following
    assert following is not None
    assert following.stage is Stage.CUTTING
    group[1].step(ev.LogCut())
    assert following.stage is Stage.SAVING
    assert group[2].facts.confirm == 0
    group[1].save()
    group.run()
    assert following.stage is Stage.STREAMING
    group.write(2, b"abc")
    assert group[2].facts.confirm == 3


def test_a_role_change_waits_for_a_cut_on_its_way() -> None:
    group = Group(2)
    group.elect(1)
    group.held = {2}
    group.write(1, b"lost")
    group.held = set()
    group[1].cutting = False
    group.elect(2, {1, 2})
    group.elect(1, {1, 2})
    assert group[1].core.role is Role.FOLLOWING
    group[1].step(ev.LogCut())
    assert group[1].core.role is Role.MASTER
    assert group[1].core.master is not None
    assert group[1].core.master.start == 0


def test_bytes_of_a_new_line_wait_until_the_line_is_durable() -> None:
    group = Group(2)
    group.unreachable = {2}
    group.elect(1, {1})
    group.write(1, b"aaa")
    group.elect(1, {1})
    group.write(1, b"bbb")
    group.unreachable = set()
    group.held = {2}
    group.tick(40)
    group[2].saving = False
    group.release(2)
    group[2].save()
    group.run()
    assert group[2].disk.log == b"aaa"
    assert group[2].disk.state.lineage == lineage((1, 0))
    group[2].save()
    group.run()
    assert group[2].disk.log == b"aaabbb"
    assert group[2].disk.state.lineage == lineage((1, 0), (2, 3))


def test_the_queue_of_waiting_bytes_is_bounded() -> None:
    group = Group(2, limits=Limits(held_appends=3))
    group.elect(1)
    group[2].saving = False
    following = group[2].core.following
    assert following is not None
    link = following.link
    assert link is not None
    entry = EpochEntry(Epoch(2), Offset(0))
    for offset in range(4):
        message = Append(
            epoch=Epoch(1),
            entry=entry,
            offset=Offset(offset),
            confirm=Offset(0),
            in_sync=True,
            data=b"x",
        )
        group[2].step(ev.Received(link, message))
    assert following.link is None
    assert group[2].disk.log == b""


def test_a_replica_refuses_a_cut_below_confirm_and_stays_so() -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    group.tick(400)
    assert group[2].facts.confirm == 3
    group[1].disk.log.clear()
    group[1].disk.flushed = 0
    group[1].disk.state = StoredState(Epoch(1), lineage(), Offset(0))
    group.restart(1, "2")
    group.elect(1)
    assert group[2].core.role is Role.STUCK
    assert group[2].core.stuck is not None
    assert group[2].core.stuck.code == "DivergedBelowConfirm"
    assert group[2].disk.log == b"abc"


def test_an_empty_replica_copies_from_the_masters_log_start() -> None:
    group = Group(2)
    group[1].disk.start = group[1].disk.flushed = 1_000
    group[1].disk.state = StoredState(Epoch(1), lineage((1, 700)), Offset(1_000))
    group.restart(1, "2")
    group.epoch = 1
    group.elect(1, {1})
    group.write(1, b"abc")
    group.tick(400)
    assert (group[2].disk.start, group[2].disk.log) == (1_000, b"abc")
    assert group[2].facts.lineage == lineage((2, 1_000))
    assert group[1].last_proposal().sync_state_set == {1, 2}


def test_a_master_of_a_newer_epoch_is_not_known_to_a_stale_one() -> None:
    """A Hello of a newer epoch makes a stale master ask the controller, and waits meanwhile."""
    group = Group(3)
    group.elect(1)
    group.epoch, group.set_epoch = 2, 2
    view = group.view(1)
    group[3].step(ev.ViewLearned(view))
    group.tick(20)
    assert any("epoch 2" in effect.reason for effect in group[1].asked(fx.AskView))  # type: ignore[attr-defined]  # AskView
    group[1].step(ev.ViewLearned(view))
    group.run()
    assert group[3].core.streaming


def test_a_hello_of_an_older_epoch_is_sent_back() -> None:
    group = Group(2)
    group.elect(1)
    hello = Hello(
        epoch=Epoch(0),
        broker_id=BrokerId(2),
        incarnation="1",
        log_start=Offset(0),
        end=Offset(0),
        lineage=(),
    )
    group[1].step(ev.Received(50, hello))
    assert fx.CloseLink(50, "not the master of epoch 0") in group[1].done


def test_two_processes_with_copies_of_one_volume_are_told_apart() -> None:
    group = Group(2)
    group.elect(1)
    hello = Hello(
        epoch=Epoch(1),
        broker_id=BrokerId(1),
        incarnation="copy",
        log_start=Offset(0),
        end=Offset(0),
        lineage=(),
    )
    group[1].step(ev.Received(50, hello))
    assert any("our own id" in effect.reason for effect in group[1].asked(fx.CloseLink))  # type: ignore[attr-defined]  # CloseLink


@pytest.mark.parametrize(
    "message",
    [
        Truncate(
            epoch=Epoch(1),
            incarnation="other",
            point=Offset(0),
            entry=EpochEntry(Epoch(1), Offset(0)),
        ),
        Append(
            epoch=Epoch(1),
            entry=EpochEntry(Epoch(1), Offset(0)),
            offset=Offset(5),
            confirm=Offset(0),
            in_sync=True,
            data=b"x",
        ),
        Append(
            epoch=Epoch(2),
            entry=EpochEntry(Epoch(1), Offset(0)),
            offset=Offset(0),
            confirm=Offset(0),
            in_sync=True,
        ),
        Append(
            epoch=Epoch(1),
            entry=EpochEntry(Epoch(1), Offset(3)),
            offset=Offset(0),
            confirm=Offset(0),
            in_sync=True,
        ),
        Farewell(epoch=Epoch(1), reason="so"),
        Hello(
            epoch=Epoch(1),
            broker_id=BrokerId(1),
            incarnation="1",
            log_start=Offset(0),
            end=Offset(0),
            lineage=entries(),
        ),
    ],
    ids=["out of turn", "a gap", "another epoch", "line above its bytes", "farewell", "hello"],
)
def test_what_does_not_fit_ends_the_link_and_changes_nothing(
    message: Truncate | Append | Farewell | Hello,
) -> None:
    group = Group(2)
    group.elect(1)
    following = group[2].core.following
    assert following is not None
    assert following.link is not None
    group[2].step(ev.Received(following.link, message))
    assert following.link is None
    assert group[2].disk.log == b""
    group.run()
    group.tick(400)
    assert group[2].core.streaming, "it connects again"


def test_a_silent_master_is_left_and_called_again() -> None:
    group = Group(2)
    group.elect(1)
    group.held = {2}
    group.tick(group.limits.silence_ms + 40)
    assert any("nothing heard" in effect.reason for effect in group[2].asked(fx.AskView))  # type: ignore[attr-defined]  # AskView
    group.release(2)
    group.tick(400)
    assert group[2].core.streaming


def test_a_moved_master_is_called_at_its_new_address() -> None:
    group = Group(2)
    group.elect(1)
    moved = replace(group.view(1), master_ha_address="1:moved", sync_state_set_epoch=2)
    group[2].step(ev.ViewLearned(moved))
    group.tick(40)
    last = group[2].asked(fx.OpenLink)[-1]
    assert isinstance(last, fx.OpenLink)
    assert last.address == "1:moved"


def test_a_master_without_one_leaves_everybody_idle() -> None:
    group = Group(2)
    group.elect(1)
    group.epoch = 2
    group.tell(None, [1, 2])
    assert {group[1].core.role, group[2].core.role} == {Role.IDLE}
    assert group[1].asked(fx.Demoted) == [fx.Demoted(Epoch(1))]
    group.tell(2, [1, 2])
    assert group[2].core.role is Role.MASTER, "an epoch without a master may still get one"


def test_the_window_bounds_what_is_sent_and_not_acknowledged() -> None:
    group = Group(2, limits=Limits(window_bytes=10, batch_bytes=4, gather_bytes=4))
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"x" * 100)
    assert group[2].facts.end == 12
    group[2].flushing = True
    group[2].flush()
    group.run()
    assert group[1].facts.confirm == 100
