"""One group of a process: what ends with its mastership, and how it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.clients.traffic import Traffic
from gantry_broker.control.joining import IdStruck
from gantry_broker.control.requests import TakeoverReport
from gantry_broker.host import hosting
from gantry_broker.host.client_options import ClientOptions
from gantry_broker.host.hosting import REBUILDS_MAX, HostedGroup
from gantry_broker.host.server import BrokerServer
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.host.tracing import BrokerTracing
from gantry_broker.log import DerivedLostError
from gantry_broker.remote.messages import Ping
from gantry_broker.replica import Role
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import HeaderError, VolumeError
from gantry_protocol.settings.defaults import DELAY_LEVELS
from gantry_protocol.tracing.export import SpanExport
from support.broker_cluster import eventually
from support.lone_member import lone_member


class World:
    """A hosted group whose parts write down what they are told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        options = ClientOptions(DelayLevels.parse(DELAY_LEVELS), Policy(), None, 72, 16_384)
        self.hosted = HostedGroup("g", options)
        left = asyncio.Event()
        left.set()
        reads = SimpleNamespace(close=self.note("reads"))
        group: Any = SimpleNamespace(left=left, leave=self.note("leave"), epoch=1, reads=reads)
        processor: Any = SimpleNamespace(
            close=self.note("close"), flush_offsets=lambda _: self.told.append("offsets")
        )
        stores: Any = SimpleNamespace(
            end=lambda name, reason: self.told.append(f"store of {name}"),
            remove=lambda name: self.told.append(f"no {name}"),
        )
        self.hosted.group, self.hosted.processor = group, processor
        self.hosted.stores = stores
        self.hosted.router.processor = processor
        self.hosted.router.end_sessions = lambda _: self.told.append("sessions")  # type: ignore[method-assign]
        self.hosted.router.cut_all = self.noted("pipes")  # type: ignore[method-assign]
        self.hosted.remoting.stop_listening = self.noted("port")  # type: ignore[method-assign]

    def note(self, what: str) -> Any:
        return lambda: self.told.append(what)

    def noted(self, what: str) -> Any:
        async def note(*_: object) -> None:
            self.told.append(what)

        return note


@pytest.fixture
async def world() -> World:
    return World()


async def test_the_end_of_a_mastership_ends_whom_it_served(world: World) -> None:
    world.hosted.serving_ends()
    assert world.told == ["store of g", "close", "sessions"]
    assert world.hosted.processor is None
    assert world.hosted.router.processor is None
    world.hosted.serving_ends()
    assert world.told == ["store of g", "close", "sessions", "store of g"], (
        "nothing is closed twice"
    )


async def test_a_takeover_is_traced_from_the_word_to_the_first_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ClientOptions(DelayLevels.parse(DELAY_LEVELS), Policy(), None, 72, 16_384)
    export = SpanExport("http://nowhere", {}, "1")
    hosted = HostedGroup("g", options, tracing=BrokerTracing(export, "c", 1.0))
    monkeypatch.setattr(hosted.router, "role_changed", lambda: None)
    assert hosted._takeover is not None
    now_ms = 100
    hosted._takeover._wall_ms = lambda: now_ms
    core = SimpleNamespace(role=Role.PROMOTING, epoch=7, log=SimpleNamespace(confirm=9))
    report = TakeoverReport(None, None)
    group = SimpleNamespace(
        core=core,
        epoch=7,
        shell=SimpleNamespace(on_flushed=None),
        writes=SimpleNamespace(takeover=lambda confirm: report),
        reads=SimpleNamespace(is_open=False),
    )
    hosted.group = cast(Any, group)
    hosted.role_changed()
    now_ms, core.role = 200, Role.MASTER
    hosted._trace()
    assert hosted._traced is not None
    assert group.shell.on_flushed == hosted._traced.flushed
    hosted.ticked()
    report = TakeoverReport(None, 300)
    hosted.ticked()
    hosted.ticked()
    spans = [(span.name, span.start_ns // 10**6, span.end_ns // 10**6) for span in export._queue]
    assert spans == [("promote", 100, 200), ("first write", 200, 300)]
    hosted.serving_ends()
    assert hosted._traced is None
    core.role, core.epoch, group.epoch = Role.PROMOTING, 9, 9
    hosted.role_changed()
    core.role = Role.MASTER
    report = TakeoverReport(None, None)
    hosted._trace()
    hosted.serving_ends()  # before it wrote
    report = TakeoverReport(None, 600)
    hosted.ticked()
    assert [span.name for span in export._queue] == ["promote", "first write", "promote"]


async def test_tracing_is_switched_amid_a_mastership() -> None:
    options = ClientOptions(DelayLevels.parse(DELAY_LEVELS), Policy(), None, 72, 16_384)
    tracing = BrokerTracing(SpanExport(None, {}, "1"), "c", 0.0)
    hosted = HostedGroup("g", options, tracing=tracing)
    shell = SimpleNamespace(on_flushed=None)
    tier = SimpleNamespace(tune=lambda _: None)
    hosted.group = cast(Any, SimpleNamespace(shell=shell, epoch=1, tier=tier))
    told: list[object] = []
    processor = SimpleNamespace(tune=lambda _: None, trace=told.append, close=lambda: None)
    hosted.processor = cast(Any, processor)

    def tuned(endpoint: str | None, ratio: float) -> OpenSends | None:
        tracing.tune(endpoint, ratio)
        hosted.tune(options, cast(Any, None))
        return hosted._traced_now()

    assert tuned(None, 1.0) is None
    assert (hosted.router.processor, told, shell.on_flushed) == (processor, [], None)
    sends = tuned("http://nowhere", 0.5)
    assert sends is not None
    assert (hosted._traced, told, shell.on_flushed) == (sends, [sends], sends.flushed)
    assert hosted.router.processor is not processor, "there is an entrance before it"
    assert sends.ratio == 0.5
    assert tuned("http://elsewhere", 0.25) is sends, "sends under way are still known"
    assert sends.ratio == 0.25
    assert tuned(None, 0.25) is None
    assert hosted.router.processor is processor
    assert hosted._traced is sends, "for those under way"
    hosted.serving_ends()
    assert hosted._traced is None


async def test_without_a_collector_the_router_has_the_processor_itself(world: World) -> None:
    world.hosted._trace()
    assert world.hosted._traced is None
    assert world.hosted._takeover is None


async def test_who_leaves_writes_offsets_hands_over_and_cuts_pipes(world: World) -> None:
    await world.hosted.leave()
    assert world.told == ["offsets", "leave", "port", "pipes"]


async def test_who_begins_anew_has_ended_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = world.hosted
    monkeypatch.setattr(hosted, "_options", object())
    monkeypatch.setattr(hosted, "_shared", object())
    monkeypatch.setattr(hosted.group, "stop", world.noted("stop"), raising=False)
    for step in ("open", "start"):
        monkeypatch.setattr(hosted, step, world.noted(step))
    await hosted._begin_anew(leaves=True)
    ended = ["store of g", "close", "sessions"]
    assert world.told == ["offsets", "leave", "reads", *ended, "no g", "stop", "open", "start"]


async def test_what_is_lost_while_it_stops_is_not_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would close one volume, and the thread that syncs all logs wait for itself."""
    hosted = world.hosted
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failure.add_done_callback(hosted._group_failed)

    async def stop() -> None:
        world.told.append("stop")
        failure.set_exception(DerivedLostError("spoilt"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    monkeypatch.setattr(hosted.group, "stop", stop, raising=False)
    monkeypatch.setattr(hosted.router, "close", world.note("router"))
    monkeypatch.setattr(hosted.remoting, "stop", world.noted("port"))
    monkeypatch.setattr(hosted, "_begin_anew", world.noted("anew"))
    await hosted.stop()
    await asyncio.sleep(0)
    assert hosted.failure.done()
    assert world.told[-1] == "stop"


async def test_a_disk_that_spoils_more_and_more_is_not_worth_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = [world.hosted._may_rebuild() for _ in range(REBUILDS_MAX + 1)]
    assert tries == [*[True] * REBUILDS_MAX, False]
    monkeypatch.setattr("gantry_broker.host.hosting.REBUILDS_WITHIN_S", 0.0)
    assert world.hosted._may_rebuild(), "what was long ago does not count"


async def test_what_went_through_a_front_is_counted_while_this_is_the_master(world: World) -> None:
    traffic, pulled = Traffic(0.0), PulledOffsets()
    said = Ping({"t": 3}, {"t@g": 2}, [("g", "t", 0, 5)])
    world.hosted.processor = SimpleNamespace(traffic=traffic, pulled=pulled)  # type: ignore[assignment]
    world.hosted._moved(said)
    assert (traffic.totals(), pulled.offset("g", "t", 0)) == ((3, 2), 5)
    world.hosted.processor = None
    world.hosted._moved(said)
    assert traffic.totals() == (3, 2)


async def test_news_of_consumers_are_of_its_own_cluster(world: World) -> None:
    group: Any = SimpleNamespace(cluster="c", consumers_changed=world.note("look"))

    def tell(ext: dict[str, str]) -> None:
        code = RequestCode.GANTRY_CONSUMERS_CHANGED
        hosting._ABOUT_MEMBER[code](group, request(code, ext))

    tell({"clusterName": "other"})
    with pytest.raises(HeaderError, match="clusterName"):
        tell({"topic": ""})
    assert world.told == []
    tell({"clusterName": "c"})
    assert world.told == ["look"]


async def test_a_failed_group_just_goes(world: World) -> None:
    world.hosted.fail(RuntimeError("no"))
    await world.hosted.leave()
    assert world.told == []


async def test_who_cannot_begin_anew_is_not_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id was struck, and then something else goes wrong: the group ends, and says so."""
    async with lone_member(tmp_path) as member:
        options = ClientOptions(DelayLevels.parse(DELAY_LEVELS), Policy(), None, 72, 16_384)
        hosted = HostedGroup("g", options)
        hosted.group, hosted._options = member.group, member.group.options
        hosted._shared = member.group._shared
        member.group.failure.add_done_callback(hosted._group_failed)

        async def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(hosted, "open", full)
        member.group._fail(IdStruck("broker 1 was struck"))
        await eventually(hosted.failure.done, "it has failed")
        assert isinstance(hosted.failure.exception(), VolumeError)
        assert not hosted.ready()[0]
        await hosted.stop()
        member._has_stopped = True


async def test_a_group_that_cannot_be_opened_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for what no part of the product foresees, such as a disk without room."""
    server = BrokerServer(
        BrokerSettings(
            name="broker-0",
            group="g",
            cluster="c",
            controllers=["127.0.0.1:1"],
            data_dir=tmp_path,
            bind="127.0.0.1",
            advertise="127.0.0.1",
            remoting_port=0,
            ha_port=0,
            http_port=0,
        )
    )

    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(server.hosted[0], "open", full)
    with pytest.raises(VolumeError, match=r"is full .*No space left.*start again"):
        async with asyncio.timeout(60):
            await server.run(asyncio.Event())
