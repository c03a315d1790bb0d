"""Role changes told over loopback: to whom, the newest only, and never in the way."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from gantry_controller.metadata.state import MetadataState
from gantry_controller.remoting import notifier as module
from gantry_controller.remoting.notifier import Notifier
from gantry_controller.remoting.replies import consumers_changed, role_change
from gantry_lab.bench.ports import free_ports
from gantry_protocol.bodies import SyncStateSetBody, decode_body
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.headers import from_ext
from gantry_protocol.headers.controller import NotifyBrokerRoleChangedRequestHeader
from gantry_protocol.remoting.server import Connection, RemotingServer
from support.metadata_world import three_in_sync
from support.patience import PATIENCE_S


class Broker:
    """Listens, and notes what it is told."""

    def __init__(self) -> None:
        self.told: list[RemotingCommand] = []
        self.server = RemotingServer(self._handle)
        self.address = ""

    def _handle(self, _: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.told.append(command)
        return None

    def epochs(self) -> list[int]:
        return [
            from_ext(NotifyBrokerRoleChangedRequestHeader, one.ext).master_epoch
            for one in self.told
        ]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    port = await broker.server.start("127.0.0.1", 0)
    broker.address = f"127.0.0.1:{port}"
    yield broker
    await broker.server.stop(grace_s=0)


def changes(count: int) -> list[RemotingCommand]:
    """The role changes of ``count`` elections in a row."""
    world = three_in_sync()
    commands = []
    for _ in range(count):
        assert world.elect(live=[one for one in (2, 3) if one != world.group.master_id]).ok
        commands.append(role_change(world.group))
        world.alter([2, 3], live=[2, 3])
    return commands


async def wait_for(broker: Broker, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(broker.told) < count:
            await asyncio.sleep(0.001)


async def test_golden_fields(broker: Broker) -> None:
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    notifier.tell(broker.address, changes(1)[0])
    await wait_for(broker, 1)
    (command,) = broker.told
    assert command.is_oneway
    assert command.ext is not None
    assert command.ext.items() >= {
        ("masterAddress", "127.0.0.2:10911"),
        ("masterBrokerId", "2"),
        ("masterEpoch", "2"),
        ("syncStateSetEpoch", "3"),
        ("masterIncarnation", "2-1"),
        ("masterHaAddress", "127.0.0.2:10912"),
        ("clusterName", "c"),
        ("brokerName", "broker-a"),
        ("replicas", "3"),
        ("minInSyncReplicas", "2"),
    }
    body = decode_body(SyncStateSetBody, command.body)
    assert (body.sync_state_set, body.sync_state_set_epoch) == ([2, 3], 3)
    await notifier.close()


async def test_newest_replaces_what_waits_for_the_same_address(broker: Broker) -> None:
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    for command in changes(5):
        notifier.tell(broker.address, command)
    await wait_for(broker, 1)
    await asyncio.sleep(0.05)
    assert broker.epochs() == [6]
    for command in changes(7)[5:]:
        notifier.tell(broker.address, command)
    await wait_for(broker, 3)
    assert broker.epochs() == [6, 7, 8]
    assert broker.server.stats.accepted == 1
    await notifier.close()


async def test_a_role_change_that_waits_is_not_replaced_by_news_of_consumers(
    broker: Broker,
) -> None:
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    first, last = changes(2)
    notifier.tell(broker.address, first)
    for _ in range(3):
        notifier.tell(broker.address, consumers_changed("c"))
    async with asyncio.timeout(PATIENCE_S):
        while notifier.waiting:
            await asyncio.sleep(0.001)
        notifier.tell(broker.address, last)  # behind all that waited
        while not broker.told or broker.told[-1].ext != last.ext:
            await asyncio.sleep(0.001)
    await notifier.close()
    role, news = RequestCode.NOTIFY_BROKER_ROLE_CHANGED, RequestCode.GANTRY_CONSUMERS_CHANGED
    assert [command.code for command in broker.told] == [role, news, role]


async def test_dead_address_harms_nobody(broker: Broker) -> None:
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    command = changes(1)[0]
    notifier.tell("127.0.0.1:1", command)
    notifier.tell(broker.address, command)
    await wait_for(broker, 1)
    async with asyncio.timeout(PATIENCE_S):
        while not notifier.failed:
            await asyncio.sleep(0.001)
    notifier.tell("127.0.0.1:1", command)
    await notifier.close()


async def test_addresses_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESSES_MAX", 1)
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    notifier.tell(broker.address, changes(1)[0])
    notifier.tell("127.0.0.1:1", changes(1)[0])
    assert notifier.failed == 1
    await wait_for(broker, 1)
    await notifier.close()


async def test_broker_whose_listener_is_just_restarting_is_tried_again() -> None:
    (port,) = free_ports(1)
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    notifier.tell(f"127.0.0.1:{port}", changes(1)[0])
    async with asyncio.timeout(PATIENCE_S):
        while not notifier.retried:
            await asyncio.sleep(0.001)
    broker = Broker()
    await broker.server.start("127.0.0.1", port)
    await wait_for(broker, 1)
    assert (notifier.sent, notifier.failed, notifier.waiting) == (1, 0, 0)
    await notifier.close()
    await broker.server.stop(grace_s=0)


async def test_number_of_senders_is_bounded_and_all_are_told(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENDERS_MAX", 3)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    port = broker.address.partition(":")[2]
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    most = 0
    for host in range(1, 41):
        notifier.tell(f"127.0.0.{host}:{port}", changes(1)[0])
        most = max(most, len(notifier._senders))
    assert (most, notifier.waiting) == (3, 40)
    async with asyncio.timeout(PATIENCE_S):
        while notifier.waiting:
            await asyncio.sleep(0.001)
    assert notifier.sent + notifier.failed == 40
    await notifier.close()


async def test_who_waited_too_long_for_a_sender_is_left_to_its_poll(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_S", 0.0)
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    notifier.tell(broker.address, changes(1)[0])
    async with asyncio.timeout(PATIENCE_S):
        while notifier.waiting:
            await asyncio.sleep(0)
    assert (notifier.sent, notifier.failed) == (0, 1)
    await notifier.close()
