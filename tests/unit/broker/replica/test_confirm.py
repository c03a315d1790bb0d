"""The confirm offset: H5, unknown acknowledgements, acknowledgements of flushed bytes only."""

from __future__ import annotations

import pytest
from gantry_broker.replica import Limits, Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Ack, Append
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from support.replicas import Group


def test_a_record_is_confirmed_once_every_member_has_it_on_disk() -> None:
    group = Group(3)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    assert group[1].facts.confirm == 0
    assert group[3].facts.flushed == 3
    group[2].flush()
    group.run()
    assert group[1].facts.confirm == 3


def test_a_replica_acknowledges_only_what_it_has_flushed() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    group.tick(400)
    assert group[2].facts.end == 3
    assert group[1].facts.confirm == 0


def test_the_masters_own_disk_counts() -> None:
    group = Group(2)
    group.elect(1)
    group[1].flushing = False
    group.write(1, b"abc")
    assert group[2].facts.flushed == 3
    assert group[1].facts.confirm == 0
    group[1].flush()
    assert group[1].facts.confirm == 3


def test_a_member_that_has_not_connected_in_this_epoch_counts_as_zero() -> None:
    group = Group(3)
    group.unreachable = {3}
    group.elect(1)
    group.write(1, b"abc")
    assert group[1].facts.confirm == 0


def test_a_sole_member_confirms_what_it_flushes() -> None:
    group = Group(1, min_in_sync=1)
    group.elect(1)
    group.write(1, b"abc")
    assert group[1].facts.confirm == 3


def test_confirm_survives_a_lost_link_and_never_falls() -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    group.unreachable = {2}
    group.cut_links(2)
    group.write(1, b"def")
    assert group[1].facts.confirm == 3
    group.unreachable = set()
    group.tick(200)
    assert group[1].facts.confirm == 6


def test_a_new_master_keeps_what_its_predecessor_confirmed() -> None:
    """Members that have not called it yet have acknowledged nothing to it."""
    group = Group(3)
    group.elect(1)
    group.write(1, b"abc")
    group.tick(400)
    assert group[2].facts.confirm == 3
    group.unreachable = {1}
    group.elect(2)
    group.write(2, b"def")
    assert group[2].facts.confirm == 3


def test_after_a_new_handshake_earlier_acknowledgements_count_no_more() -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    master = group[1].core.master
    assert master is not None
    (member,) = master.members.values()
    assert member.acked == 3
    group.cut_links(2)
    group.held = {1}
    group.tick(40)
    group.held = set()
    group[2].saving = False
    group.release(1)
    assert member.acked == 0
    group[2].save()
    group.run()
    assert member.acked == 3


def test_bytes_that_came_already_end_the_link_and_change_nothing() -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    following = group[2].core.following
    assert following is not None
    assert following.link is not None
    again = Append(
        epoch=Epoch(1),
        entry=EpochEntry(Epoch(1), Offset(0)),
        offset=Offset(0),
        confirm=Offset(0),
        in_sync=True,
        data=b"abc",
    )
    group[2].step(ev.Received(following.link, again))
    assert following.link is None
    assert group[2].disk.log == b"abc"


def test_replicas_learn_confirm_as_far_as_their_own_disk_goes() -> None:
    group = Group(3)
    group.unreachable = {3}
    group.elect(1, {1, 2})
    group.write(1, b"abc")
    group.unreachable = set()
    group[3].flushing = False
    group.tick(400)
    assert group[2].facts.confirm == 3
    assert group[3].facts.end == 3
    assert group[3].facts.confirm == 0
    group[3].flush()
    assert group[3].facts.confirm == 3


def test_a_pending_member_counts_already() -> None:
    """Old and proposed: the controller may have added broker 3 before we hear of it."""
    group = Group(3)
    group.elect(1, {1, 2})
    assert group[1].last_proposal().sync_state_set == {1, 2, 3}
    group[3].flushing = False
    group.write(1, b"abc")
    assert group[1].facts.confirm == 0
    group[3].flush()
    group.run()
    assert group[1].facts.confirm == 3


def test_a_removed_member_counts_until_the_controller_agrees() -> None:
    group = Group(3)
    group.elect(1)
    group.unreachable = {3}
    group.cut_links(3)
    group.write(1, b"abc")
    group.tick(400)
    assert group[1].last_proposal().sync_state_set == {1, 2}
    assert group[1].facts.confirm == 0
    group.accept(group[1])
    assert group[1].facts.confirm == 3


def test_acknowledgements_of_an_old_epoch_end_the_link() -> None:
    group = Group(2)
    group.elect(1)
    link = group[1].core.master.links()[0]  # type: ignore[union-attr]  # it is the master
    group[1].step(ev.Received(link, Ack(epoch=Epoch(0), flushed_end=Offset(0))))
    assert group[1].core.master.links() == []  # type: ignore[union-attr]  # it is the master


@pytest.mark.parametrize(("claimed", "why"), [(4, "more than was sent"), (2, "less than before")])
def test_an_impossible_acknowledgement_ends_the_link(claimed: int, why: str) -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    master = group[1].core.master
    assert master is not None
    link = master.links()[0]
    group[1].step(ev.Received(link, Ack(epoch=Epoch(1), flushed_end=Offset(claimed))))
    assert master.links() == [], why


def test_an_acknowledgement_without_hello_is_worth_nothing() -> None:
    group = Group(3)
    group.unreachable = {3}
    group.elect(1)
    group.write(1, b"abc")
    group[1].step(ev.Received(77, Ack(epoch=Epoch(1), flushed_end=Offset(3))))
    assert group[1].facts.confirm == 0
    assert fx.CloseLink(77, "an acknowledgement of epoch 1 without a Hello") in group[1].done


def test_a_flush_asked_for_before_a_cut_says_nothing_about_what_came_after() -> None:
    group = Group(3)
    group.elect(1)
    group[2].flushing = False
    group.held = {1, 3}
    group.write(1, b"abcdef")
    cuts = group[2].facts.cuts
    assert group[2].facts.end == 6
    group.held = set()
    group.elect(3, {2, 3})
    assert group[2].facts.end == 0
    assert group[2].facts.cuts == cuts + 1
    group.write(3, b"xyz")
    group[2].step(ev.LogFlushed(Offset(3), cuts))
    assert group[2].facts.flushed == 0


def test_what_a_cut_leaves_is_on_the_disk_and_is_acknowledged() -> None:
    """Ends of earlier flushes are not told any more, and nothing asks for another one."""
    group = Group(3, limits=Limits(gather_bytes=1))
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    group.held = {1, 3}
    group.write(1, b"def")
    assert (group[2].facts.flushed, group[2].facts.end) == (0, 6)
    group.held = set()
    group.elect(3, {2, 3})
    assert (group[2].facts.flushed, group[2].facts.end) == (3, 3)
    assert group[3].facts.confirm == 3


def test_a_batch_never_crosses_an_epoch_boundary() -> None:
    group = Group(2)
    group.elect(1, {1})
    group.unreachable = {2}
    group.cut_links(2)
    group.write(1, b"aaa")
    group.elect(1, {1})
    group.write(1, b"bbb")
    group.unreachable = set()
    group.tick(400)
    sent = [
        (message.entry.epoch, message.offset, message.data)
        for effect in [group[2].facts.lineage]
        for message in _appends(group)
    ]
    assert group[2].facts.lineage == group[1].facts.lineage
    assert (1, 0, b"aaa") in sent
    assert (2, 3, b"bbb") in sent
    assert group[2].core.role is Role.FOLLOWING
    assert BrokerId(2) in group[1].last_proposal().sync_state_set


def _appends(group: Group) -> list[Append]:
    """What broker 2 was sent, read off its appends to its own log."""
    found: list[Append] = []
    for effect in group[2].asked(fx.AppendLog):
        assert isinstance(effect, fx.AppendLog)
        entry = group[2].facts.lineage.entry_at(effect.offset)
        assert entry is not None
        found.append(
            Append(
                epoch=Epoch(2),
                entry=entry,
                offset=effect.offset,
                confirm=Offset(0),
                in_sync=False,
                data=effect.data,
            )
        )
    return found
