"""The stream of a link: pipelined, resumed where it ended, and telling the epoch without data."""

from __future__ import annotations

from gantry_broker.replica import DEFAULT_LIMITS, Limits, Role
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Ack, Append
from gantry_protocol.types import Epoch
from support.replicas import Group, lineage


def said(group: Group, number: int, kind: type[Append] | type[Ack]) -> list[Append | Ack]:
    """What a node has sent on its links, of one kind."""
    return [what for who, what in group.said if who == number and isinstance(what, kind)]


def test_batches_follow_each_other_without_waiting_for_an_acknowledgement() -> None:
    group = Group(2, limits=Limits(window_bytes=40, batch_bytes=4, gather_bytes=4))
    group.elect(1)
    group.said.clear()
    group.held = {1}  # whatever the replica answers
    group.write(1, b"x" * 100)
    offsets = [message.offset for message in said(group, 1, Append)]
    assert offsets == list(range(0, 40, 4)), "ten are on their way, and the window is full"
    assert group[2].facts.end == 40
    assert group[1].facts.confirm == 0
    group.release(1)
    assert group[1].facts.confirm == 100


def test_what_is_written_behind_an_unacknowledged_message_shares_the_next_one() -> None:
    group = Group(2, limits=Limits(batch_bytes=8, gather_bytes=6))
    group.elect(1)
    group.said.clear()
    group.held = {1}  # whatever the replica answers
    for data in (b"a", b"bc", b"d"):
        group.write(1, data)
    sent = [message.data for message in said(group, 1, Append)]
    assert sent == [b"a"], "the first goes at once, the rest waits for its acknowledgement"
    group.write(1, b"ef")
    assert len(said(group, 1, Append)) == 1, "one byte is missing"
    group.write(1, b"g")
    assert said(group, 1, Append)[-1].data == b"bcdefg", "enough for a message of its own"
    group.write(1, b"h")
    group.release(1)
    assert said(group, 1, Append)[-1].data == b"h", "the acknowledgement asks for the rest"
    assert group[1].facts.confirm == 8


def test_a_link_that_broke_in_the_middle_goes_on_where_the_replica_ends() -> None:
    group = Group(2, limits=Limits(window_bytes=10, batch_bytes=4, gather_bytes=4))
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"0123456789abcdef")
    assert group[2].facts.end == 12
    group.said.clear()
    group.cut_links(2)
    group[2].flushing = True
    group[2].flush()
    group.tick(200)
    assert group[2].disk.log == b"0123456789abcdef"
    resumed = [message for message in said(group, 1, Append) if message.data]
    assert [(message.offset, message.data) for message in resumed] == [(12, b"cdef")]
    assert group[1].facts.confirm == 16


def test_an_idle_master_says_its_epoch_confirm_and_the_membership_without_data() -> None:
    group = Group(2)
    group.elect(1)
    group.write(1, b"abc")
    group.run()
    group.said.clear()
    group.tick(5 * DEFAULT_LIMITS.heartbeat_ms)
    beats = said(group, 1, Append)
    assert 4 <= len(beats) <= 6
    assert {(beat.epoch, beat.data, beat.confirm, beat.in_sync) for beat in beats} == {
        (Epoch(1), b"", 3, True)
    }
    assert len(said(group, 2, Ack)) >= len(beats), "each is answered, so each side hears the other"
    assert group[2].facts.confirm == 3


def test_members_in_sync_hear_of_confirm_at_once_where_somebody_waits_for_it() -> None:
    group = Group(3)
    group.elect(1, {1, 2})
    group.write(1, b"abc")
    assert (group[1].facts.confirm, group[2].facts.confirm) == (3, 0)
    group.said.clear()
    group.held = {1}  # whatever a replica answers
    for effect in group[1].core.confirm_news():
        group[1]._carry_out(effect)
    group.run()
    assert group[2].facts.confirm == 3
    told = said(group, 1, Append)
    assert [(message.offset, message.data) for message in told] == [(3, b"")], "and nobody else"
    group.write(1, b"d")
    assert group[1].core.confirm_news() == [] or group[2].facts.end == 4
    assert group[2].core.confirm_news() == []


def test_an_epoch_of_which_only_heartbeats_arrived_vanishes_at_the_next_one() -> None:
    """The silent divergence of ``EpochFileCache`` (KAFKA-7415).

    The master of epoch 2 begins at 3 and nothing of [3, 10) reaches the other, only its epoch.
    The other, promoted, begins epoch 3 at 3 as well; its records are its own, and not epoch 2's.
    """
    group = Group(2, min_in_sync=1)
    group.elect(2)
    group.write(2, b"abc")
    group.elect(1)
    group.tick(2 * DEFAULT_LIMITS.heartbeat_ms)
    assert group[2].facts.lineage == lineage((1, 0), (2, 3)), "epoch 2 is known, without a byte"
    group.stopped = {2}
    group.write(1, b"divergd")
    group.cut_links(1)
    group.stopped = set()
    group._held_messages.clear()
    group.unreachable = {1}
    group.epoch += 1
    group.set_epoch += 1
    group[2].step(ev.ViewLearned(group.view(2)))
    group.run()
    assert group[2].core.role is Role.MASTER
    assert group[2].facts.lineage == lineage((1, 0), (3, 3))
    group.write(2, b"0123456789")
    group.unreachable = set()
    group[1].step(ev.ViewLearned(group.view(2)))
    group.run()
    group.tick(400)
    assert group[1].disk.log == group[2].disk.log == b"abc0123456789", "cut at 3, not at 10"
    assert group[1].facts.lineage == lineage((1, 0), (3, 3))


def test_who_is_waited_for_is_told_from_who_is_behind_and_the_closest_is_first() -> None:
    group = Group(4)
    group.elect(1)
    group.write(1, b"abc")
    group.held = {3}
    group.write(1, b"defg")
    group.held = {3, 4}
    group.elect(1, {1, 2})
    master = group[1].core.master
    assert master is not None
    waited_for, behind = master.links_by_need()
    reached = {one.link: (one.broker_id, one.sent) for one in master.members.values()}
    assert [reached[link] for link in waited_for] == [(2, 7)]
    assert [reached[link] for link in behind] == [(4, 7), (3, 3)]
