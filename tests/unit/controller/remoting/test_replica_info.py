"""1004 again and again: what is remembered is said only while it is true."""

import pytest
from gantry_controller.remoting import replica_info
from gantry_controller.remoting.replica_info import ReplicaInfo
from gantry_controller.remoting.replies import Versions, replica_info_reply
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.types import BrokerId
from support.metadata_world import World, three_in_sync

AT_FIRST = Versions(3, 1)


class Polling:
    """Somebody asks for the group of one world, and both ways must say the same."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.infos = ReplicaInfo()
        self.asked = 0

    def ask(self, versions: Versions = AT_FIRST, draining: tuple[int, ...] = ()) -> RemotingCommand:
        self.asked += 1
        to = request(1004)
        to.opaque = self.asked
        draining_ids = [BrokerId(one) for one in draining]
        group = self.world.group
        answer = self.infos.reply(to, group, versions=versions, draining=draining_ids)
        assert answer == replica_info_reply(to, group, versions=versions, draining=draining_ids)
        return answer


def test_the_second_answer_is_as_the_first_but_for_its_number() -> None:
    polling = Polling(three_in_sync())
    first, second = polling.ask(), polling.ask()
    assert (first.ext, first.body) == (second.ext, second.body)
    assert (first.opaque, second.opaque) == (1, 2)


def test_whatever_changes_is_in_the_next_answer() -> None:
    polling = Polling(three_in_sync())
    polling.ask()
    assert polling.world.register(2, start=2).ok
    assert polling.world.declare(5).ok
    assert polling.ask().ext.items() >= {("replicas", "5"), ("topicsVersion", "3")}  # type: ignore[union-attr]  # is there
    assert polling.ask(Versions(4, 1)).ext["topicsVersion"] == "4"  # type: ignore[index]  # is there
    assert polling.ask(Versions(4, 2)).ext["subscriptionsVersion"] == "2"  # type: ignore[index]  # is there
    assert polling.ask(draining=(2,)).ext["drainingIds"] == "2"  # type: ignore[index]  # is there
    assert "drainingIds" not in polling.ask().ext  # type: ignore[operator]  # is there


def test_an_answer_belongs_to_its_asker() -> None:
    polling = Polling(three_in_sync())
    for _ in range(2):
        answer = polling.ask()
        assert answer.ext is not None
        answer.ext["more"] = "said"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_info, "GROUPS_MAX", 2)
    infos = ReplicaInfo()
    world = World()
    for name in ("a", "b", "c"):
        assert world.apply_id(1, name=name).ok
        group = world.state.groups["c", name]
        infos.reply(request(1004), group, versions=AT_FIRST, draining=[])
        assert 1 <= len(infos) <= 2
