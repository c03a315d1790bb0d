"""A member that people have fenced: it follows nobody, serves nobody, and keeps its log."""

from __future__ import annotations

from gantry_broker.replica import Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Farewell
from gantry_protocol.types import BrokerId
from msgspec.structs import replace
from support.replicas import Group


def fenced(group: Group, *members: int, hear: tuple[int, ...] = (1, 2, 3)) -> None:
    """The controllers have fenced ``members``, and nobody else; ``hear`` are told."""
    ids = frozenset(map(BrokerId, members))
    group.set -= ids
    group.set_epoch += 1
    view = replace(group.view(1), fenced=ids)
    for number in hear:
        group[number].step(ev.ViewLearned(view))
    group.run()


def test_it_leaves_its_master_and_keeps_its_log() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"before")
    fenced(group, 3)
    assert group[3].core.role is Role.FENCED
    assert group[3].core.following is None
    group.write(1, b"after")
    group.tick(3_000)
    assert bytes(group[3].disk.log) == b"before"
    assert group[1].facts.confirm == len(b"beforeafter"), "nobody waits for it"
    assert not group[3].asked(fx.AskElection)
    assert not group[1].asked(fx.Propose)


def test_its_master_gives_it_nothing_though_it_has_not_heard() -> None:
    group = Group(3)
    group.elect(1)
    fenced(group, 3, hear=(1, 2))
    assert any(isinstance(said, Farewell) and said.reason == "fenced" for _, said in group.said)
    group.write(1, b"after")
    group.tick(2_000)
    assert bytes(group[3].disk.log) == b""
    assert not group[1].asked(fx.Propose), "it is not even proposed"
    assert group[1].facts.confirm == len(b"after")


def test_it_asks_for_no_election_and_follows_no_later_master() -> None:
    group = Group(3)
    group.elect(1)
    fenced(group, 3)
    group.epoch, group.set_epoch = 2, group.set_epoch + 1
    group.set = frozenset({BrokerId(2)})
    view = replace(group.view(2), fenced=frozenset({BrokerId(3)}))
    for number in (2, 1, 3):
        group[number].step(ev.ViewLearned(view))
    group.run()
    group.tick(1_000)
    assert group[3].core.role is Role.FENCED
    assert group[3].core.epoch == 2, "an older epoch's word counts no more"
    assert not group[3].asked(fx.AskElection)
    headless = replace(group.view(None), master_epoch=3, fenced=frozenset({BrokerId(3)}))
    group[3].step(ev.ViewLearned(headless))
    group.tick(1_000)
    assert group[3].core.role is Role.FENCED
    assert not group[3].asked(fx.AskElection)


def test_let_in_again_it_catches_up_and_is_proposed() -> None:
    group = Group(3)
    group.elect(1)
    fenced(group, 3)
    group.write(1, b"meanwhile")
    fenced(group)
    group.tick(100)
    assert group[3].core.role is Role.FOLLOWING
    assert bytes(group[3].disk.log) == b"meanwhile"
    assert 3 in group[1].last_proposal().sync_state_set
    group.accept(group[1])
    assert group[1].core.master is not None
    assert group[1].core.master.in_sync == 3


def test_an_older_word_does_not_let_it_in() -> None:
    group = Group(3)
    group.elect(1)
    old = group.view(1)
    fenced(group, 3)
    group[3].step(ev.ViewLearned(old))
    group.tick(100)
    assert group[3].core.role is Role.FENCED


def test_a_restarted_process_stays_out() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"before")
    fenced(group, 3)
    again = group.restart(3, "2")
    fenced(group, 3)
    group.tick(1_000)
    assert again.core.role is Role.FENCED
    assert bytes(again.disk.log) == b"before"


def test_it_leaves_without_waiting_for_anybody() -> None:
    group = Group(3)
    group.elect(1)
    fenced(group, 3)
    group[3].step(ev.DrainRequested())
    group.tick(40)
    assert group[3].asked(fx.DrainEnded)
