"""A disk that does not answer: a master hands over to whose disk does, or keeps its role."""

from __future__ import annotations

from gantry_broker.replica import DEFAULT_LIMITS, Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.replicas import Group, Node

WAIT_MS = DEFAULT_LIMITS.disk_wait_ms


def hung_group(*others: int) -> Group:
    """Broker 1 is master; its disk, and those of ``others``, have just stopped answering."""
    group = Group(3)
    group.elect(1)
    group.write(1, b"abc")
    for number in (1, *others):
        group[number].flushing = False
    group.write(1, b"def")
    return group


def hand_overs(node: Node) -> list[int]:
    return [one.target for one in node.asked(fx.HandOver) if isinstance(one, fx.HandOver)]


def said(node: Node) -> list[str]:
    return [one.sentence for one in node.asked(fx.DiskSilent) if isinstance(one, fx.DiskSilent)]


def silent(node: Node) -> bool:
    assert node.core.serving is not None
    return node.core.serving.disk_is_silent


def test_a_master_whose_disk_does_not_answer_hands_over() -> None:
    group = hung_group()
    group.tick(WAIT_MS - 40)
    assert (hand_overs(group[1]), silent(group[1])) == ([], False)
    group.tick(60)
    assert group[1].asked(fx.HandOver) == [fx.HandOver(BrokerId(2), Epoch(1))]
    assert silent(group[1]), "it takes no write meanwhile"
    assert said(group[1]) == ["a member that is in sync is asked to take over"]
    group.tick(500)
    assert len(hand_overs(group[1])) == 1, "one question at a time"


def test_what_was_acknowledged_is_at_whoever_takes_over() -> None:
    group = hung_group()
    group.tick(WAIT_MS + 20)
    group.elect(2)
    assert group[1].asked(fx.Demoted) == [fx.Demoted(Epoch(1))]
    assert bytes(group[2].disk.log) == b"abcdef"
    group.tick(DEFAULT_LIMITS.connect_grace_ms + 40)
    group.accept(group[2])  # broker 1 is not waited for
    group.write(2, b"ghi")
    assert group[2].facts.confirm == 9


def test_it_asks_for_the_member_that_holds_most() -> None:
    group = hung_group(2)
    group.tick(1_000)
    group[2].flush()
    group[2].flushing = False
    group.write(1, b"ghi")
    group.tick(WAIT_MS - 980)
    assert hand_overs(group[1])[:1] == [3]


def test_whose_disk_stands_still_as_well_is_not_asked_for() -> None:
    group = hung_group(2, 3)
    group.tick(WAIT_MS + 20)
    assert hand_overs(group[1]) == []
    assert said(group[1]) == [
        "no member that is in sync can take over, so it stays the master and takes no write"
    ]
    assert silent(group[1])


def test_it_serves_again_when_the_disk_does() -> None:
    group = hung_group(2, 3)
    group.tick(WAIT_MS + 20)
    for number in (2, 3, 1):
        group[number].flush()
    group.tick()
    assert group[1].core.role is Role.MASTER
    assert not silent(group[1])
    assert group[1].asked(fx.DiskAnswers) == [fx.DiskAnswers()]


def test_a_slow_disk_is_no_silent_one() -> None:
    group = hung_group()
    for size in range(4):
        group.tick(WAIT_MS - 40)
        group[1].step(ev.LogFlushed(Offset(4 + size % 2), group[1].facts.cuts))
        group.write(1, b"x")
        group[1].flush()
        group.write(1, b"y")
    assert hand_overs(group[1]) == []


def test_a_disk_with_nothing_to_do_is_no_silent_one() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"abc")
    group.tick(2 * WAIT_MS)
    group[1].flushing = False
    group.write(1, b"def")
    group.tick(WAIT_MS - 40)
    assert hand_overs(group[1]) == []


def test_a_process_that_stood_still_blames_no_disk() -> None:
    group = hung_group()
    group.tick(WAIT_MS - 100)
    group.now_ms += 60_000
    group.tick()
    assert hand_overs(group[1]) == []
    group.tick(200)
    assert hand_overs(group[1]) == [2]


def test_who_is_refused_is_followed_by_the_next_and_then_all_are_asked_for_again() -> None:
    group = hung_group()
    group.tick(WAIT_MS + 20)
    for _ in range(2):
        group[1].step(ev.HandOverFinished(accepted=False))
        group.tick(DEFAULT_LIMITS.retry_first_ms + 40)
    assert hand_overs(group[1]) == [2, 3]
    group.tick(DEFAULT_LIMITS.retry_last_ms + 40)
    assert hand_overs(group[1]) == [2, 3, 2]
    assert group[1].core.role is Role.MASTER, "until another one is elected"


def test_whom_nobody_has_refused_is_asked_for_again() -> None:
    group = hung_group()
    group.tick(WAIT_MS + 20)
    for _ in range(3):
        group[1].step(ev.HandOverFinished(accepted=False, answered=False))
        group.tick(DEFAULT_LIMITS.retry_first_ms + 40)
    assert hand_overs(group[1]) == [2, 2, 2, 2]


def test_an_election_of_which_nobody_hears_is_asked_for_again() -> None:
    group = hung_group()
    group.tick(WAIT_MS + 20)
    group[1].step(ev.HandOverFinished(accepted=True))
    group.tick(DEFAULT_LIMITS.drain_give_up_ms - 40)
    assert hand_overs(group[1]) == [2]
    group.tick(60)
    assert hand_overs(group[1]) == [2, 2]


def test_a_deposed_master_waits_for_its_disk_before_it_follows() -> None:
    group = hung_group()
    group.tick(WAIT_MS + 20)
    opened = len(group[1].asked(fx.OpenLink))
    group.elect(2)
    group.tick(1_000)
    assert group[1].core.role is Role.FOLLOWING
    assert len(group[1].asked(fx.OpenLink)) == opened, "a cut would wait for the disk"
    assert said(group[1])[-1] == "it follows the master again once the disk answers"
    group[1].flushing = True
    group[1].flush()
    group.tick(40)
    assert group[1].core.streaming


def test_a_leaving_master_leaves_as_ever() -> None:
    group = hung_group()
    group[1].step(ev.DrainRequested())
    group.tick(DEFAULT_LIMITS.drain_settle_ms)
    assert hand_overs(group[1]) == [2]
    group[1].step(ev.HandOverFinished(accepted=False))
    group.tick(100)
    assert hand_overs(group[1]) == [2, 3]


def promoting_group() -> Group:
    """Broker 1 is to become master, and its disk does not keep that."""
    group = Group(3)
    group.elect(1)
    group[1].saving = False
    group.elect(1)
    assert group[1].core.role is Role.PROMOTING
    return group


def test_who_cannot_keep_that_it_is_master_hands_over() -> None:
    group = promoting_group()
    group.tick(WAIT_MS - 40)
    assert hand_overs(group[1]) == []
    group.tick(60)
    assert group[1].asked(fx.HandOver) == [fx.HandOver(BrokerId(2), Epoch(2))]


def test_a_promotion_that_was_given_away_is_waited_for_longer_next_time() -> None:
    group = promoting_group()
    group.tick(WAIT_MS + 20)
    assert hand_overs(group[1]) == [2]
    for master in (2, 1):  # it went round
        group.epoch += 1
        group.set_epoch += 1
        group[1].step(ev.ViewLearned(group.view(master)))
    assert group[1].core.role is Role.PROMOTING
    group.tick(WAIT_MS - 100)
    assert hand_overs(group[1]) == [2]
    group.tick(200)
    assert hand_overs(group[1]) == [2, 2]
