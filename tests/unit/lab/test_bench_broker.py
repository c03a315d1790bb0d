"""The parts of `gantry_lab bench broker` that compute: frames, what answers are worth, accounts."""

from __future__ import annotations

import asyncio
import itertools
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from gantry_cli.client.routes import Queue, Route
from gantry_lab.bench import suite
from gantry_lab.bench.broker import frames
from gantry_lab.bench.broker.kills import Account, Round, Rounds
from gantry_lab.bench.broker.many_queues import topic
from gantry_lab.bench.broker.target import ProcessGroup
from gantry_lab.bench.broker.ways import compared, stores_once
from gantry_lab.bench.broker.work import FILL_BATCH, SAMPLE_EVERY, Fill, Pulls, Scatter, Sends
from gantry_lab.bench.load import FrameLoad, Numbers, Reply, Window, decode_reply
from gantry_lab.bench.results import UNITS, Latencies
from gantry_lab.bench.senders import BODY_BYTES, Senders
from gantry_lab.bench.stage import figures
from gantry_lab.bench.suite import Wish
from gantry_lab.bench.usage import bytes_read, cpu_of, peak_mb
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, SerializeType, reply
from gantry_protocol.errors import ConnectionClosed, FrameError, GantryError
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.headers.client import PullMessageRequestHeader, SendMessageRequestHeaderV2
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records import (
    MessageRecord,
    decode_properties,
    encode_properties,
    encode_record,
    split_batch,
)
from gantry_protocol.remoting.server import Connection, RemotingServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gantry_cli.client.session import Session
    from gantry_lab.bench.suite import Goal

BENCH, KILLS = suite.bench("broker"), suite.bench("kills")
QUEUES = [Queue("group", number, "127.0.0.1:1") for number in range(3)]


def decoded(frame: bytearray | None) -> RemotingCommand:
    assert frame is not None
    (command,) = FrameDecoder().feed(bytes(frame))
    return command


def sent(frame: bytearray | None) -> tuple[RemotingCommand, SendMessageRequestHeaderV2]:
    command = decoded(frame)
    return command, from_ext(SendMessageRequestHeaderV2, command.ext)


def test_every_message_is_another_and_says_what_a_java_client_says() -> None:
    work = Sends("orders", QUEUES, lanes=5)
    seen = [sent(work.first(4)) for _ in range(3)]
    assert {command.code for command, _ in seen} == {RequestCode.SEND_MESSAGE_V2}
    assert {command.language for command, _ in seen} == {"JAVA"}
    assert {command.serialize_type for command, _ in seen} == {SerializeType.JSON}
    assert {command.opaque for command, _ in seen} == {4}
    assert {(header.topic, header.queue_id) for _, header in seen} == {("orders", 1)}
    assert {len(command.body) for command, _ in seen} == {1024}
    properties = [decode_properties(header.properties or "") for _, header in seen]
    assert len({one["UNIQ_KEY"] for one in properties}) == 3
    assert {(len(one["UNIQ_KEY"]), one["WAIT"]) for one in properties} == {(32, "true")}


def test_messages_of_a_batch_have_keys_of_their_own_in_every_batch() -> None:
    work = Sends("orders", QUEUES, lanes=1, batch=4)
    keys = []
    for number in range(2):
        frame = work.following(0, Reply(), memoryview(b"")) if number else work.first(0)
        command, header = sent(frame)
        assert (command.code, header.batch) == (RequestCode.SEND_MESSAGE_V2 + 10, True)
        messages = split_batch(command.body)
        keys += [decode_properties(one.properties)["UNIQ_KEY"] for one in messages]
    assert len(keys) == len(set(keys)) == 8
    assert work.messages == 4


def test_a_log_is_filled_until_enough_is_acknowledged() -> None:
    told: list[int] = []
    work = Fill("orders", QUEUES, 3 * FILL_BATCH * BODY_BYTES, told.append)
    frames = [work.following(0, Reply(), memoryview(b"")) for _ in range(3)]
    assert [frame is None for frame in frames] == [False, False, True]
    assert sum(told) == 3 * FILL_BATCH * BODY_BYTES


def test_lanes_never_share_a_key() -> None:
    work = Sends("orders", QUEUES, lanes=64)
    keys = {
        decode_properties(sent(work.first(lane))[1].properties or "")["UNIQ_KEY"]
        for lane in range(64)
        for _ in range(3)
    }
    assert len(keys) == 192


@pytest.mark.parametrize("batch", [1, 3])
def test_work_that_is_made_again_never_repeats_a_key(batch: int) -> None:
    """Brokers would take its messages for repeats, and store none of them."""
    keys = []
    for work in (Sends("orders", QUEUES, 2, batch), Sends("orders", QUEUES, 2, batch)):
        for lane in range(2):
            command, header = sent(work.first(lane))
            texts = [header.properties or ""]
            if batch > 1:
                texts = [one.properties for one in split_batch(command.body)]
            keys += [decode_properties(text)["UNIQ_KEY"] for text in texts]
    assert len(keys) == len(set(keys)) == 4 * batch


@pytest.mark.parametrize("offset", [0, 7, 12_345, 2**63 - 1])
def test_any_offset_finds_room_in_the_frame_of_a_pull(offset: int) -> None:
    template = frames.pull(9, "orders", QUEUES[2])
    for number in (2**62, offset):  # a shorter number leaves nothing of a longer one behind
        command = decoded(template.at_offset(number))
    header = from_ext(PullMessageRequestHeader, command.ext)
    assert (header.queue_id, header.queue_offset, header.max_msg_nums) == (2, offset, 32)
    assert (header.subscription, header.sys_flag) == ("*", 6)
    assert command.opaque == 9


def test_messages_are_scattered_to_the_places_in_turn() -> None:
    work = Scatter(iter([(topic(3), 999), (topic(12), 0)]), topic(0), QUEUES[0], 2, b"x")
    places = []
    for lane in (1, 0):
        _, header = sent(work.first(lane))
        places.append((header.topic, header.queue_id))
    assert places == [(topic(3), 999), (topic(12), 0)]
    assert work.following(0, Reply(), memoryview(b"")) is None
    assert work.messages == 1


def records(count: int) -> memoryview:
    one = encode_record(
        MessageRecord(topic="orders", body=b"x", properties=encode_properties({"A": "b"}))
    )
    return memoryview(one * count)


def answer(following: int, end: int = 1000) -> Reply:
    return Reply(ext=Numbers(str(following), str(end)))


def asked(frame: bytearray | None) -> int:
    return from_ext(PullMessageRequestHeader, decoded(frame).ext).queue_offset


def test_a_consumer_reads_on_and_begins_again_at_the_end() -> None:
    work = Pulls("orders", QUEUES, 1, once=False)
    assert asked(work.first(0)) == 0
    assert asked(work.following(0, answer(32, 70), records(32))) == 0  # lane 0 begins at the start
    assert asked(work.following(0, answer(32, 70), records(32))) == 32
    assert asked(work.following(0, answer(64, 70), records(32))) == 64
    assert asked(work.following(0, answer(70, 70), records(6))) == 0
    assert work.messages == 102


def test_consumers_of_one_queue_begin_at_places_of_their_own() -> None:
    work = Pulls("orders", QUEUES[:1], 4, once=False)
    assert [asked(work.following(lane, answer(32), records(32))) for lane in range(4)] == [
        0,
        250,
        500,
        750,
    ]


def test_a_queue_is_read_once_to_its_end() -> None:
    work = Pulls("orders", QUEUES, 1, once=True)
    assert asked(work.following(0, answer(32, 40), records(32))) == 32
    assert work.following(0, answer(40, 40), records(8)) is None
    assert work.first(0) is None


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (answer(0), records(1)),
        (answer(33), records(33)),
        (Reply(), records(1)),
        (answer(32), memoryview(b"")),
        (answer(32), records(31)),
    ],
    ids=["does not move", "more than asked", "no numbers", "no bytes", "fewer than it claims"],
)
def test_a_pull_that_did_not_bring_what_it_says_ends_the_measurement(
    reply: Reply, body: memoryview
) -> None:
    with pytest.raises(GantryError, match="A pull at 0"):
        Pulls("orders", QUEUES, 1, once=False).following(0, reply, body)


def test_bodies_are_compared_with_their_sums_now_and_then() -> None:
    work = Pulls("orders", QUEUES[:1], 1, once=False)
    damaged = bytearray(records(32))
    damaged[8] ^= 1  # of the first record's CRC
    found = 0
    for number in range(2 * SAMPLE_EVERY):
        body = records(32) if number < 2 else memoryview(damaged)
        try:
            work.following(0, answer(32 + work._offsets[0], 2**40), body)
        except GantryError:
            found += 1
    assert found == 1


# ---- the load on a server that answers as it is told


async def loaded(
    respond: Callable[[RemotingCommand], RemotingCommand | None], seconds: float = 0.2
) -> tuple[dict[str, float], Sends]:
    server = RemotingServer(lambda _conn, request: respond(request))
    port = await server.start("127.0.0.1", 0)
    work = Sends("orders", QUEUES, 4)
    load: FrameLoad | None = None
    try:
        load = await asyncio.to_thread(FrameLoad, work, [f"127.0.0.1:{port}"], 4)
        seen = await load.window(0.0, seconds)
        return figures(seen, [None, None], ProcessGroup.roles), work
    finally:
        if load is not None:
            load.close()
        await server.stop(0)


async def test_answers_of_code_0_are_work_done() -> None:
    found, work = await loaded(reply)
    assert work.messages >= found["messages_per_s"] * 0.2 * 0.9 > 0
    assert found["refused_percent"] == 0
    assert found["generator_cpu_us"] > 0


async def test_a_refusal_is_no_work_and_is_repeated() -> None:
    count = itertools.count()

    def sometimes(request: RemotingCommand) -> RemotingCommand:
        busy = next(count) == 5
        return reply(request, ResponseCode.SYSTEM_BUSY if busy else ResponseCode.SUCCESS)

    found, _ = await loaded(sometimes)
    assert 0 < found["refused_percent"] < 50


async def test_refusals_without_end_are_no_figure() -> None:
    def refuse(request: RemotingCommand) -> RemotingCommand:
        return reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    with pytest.raises(GantryError, match=r"refused 101 of 101.*the disk is full"):
        await loaded(refuse, seconds=10)


async def test_an_answer_to_something_else_ends_the_measurement() -> None:
    def confused(request: RemotingCommand) -> RemotingCommand:
        request.opaque += 1
        return reply(request)

    with pytest.raises(FrameError, match="is not under way"):
        await loaded(confused, seconds=10)


async def test_a_large_answer_comes_in_pieces() -> None:
    found, _ = await loaded(lambda request: reply(request, body=bytes(300_000)), seconds=2)
    assert found["mb_per_s"] > 0


async def test_a_connection_that_ends_is_told() -> None:
    def leave(conn: Connection, _: RemotingCommand) -> None:
        conn.close()

    server = RemotingServer(leave)
    port = await server.start("127.0.0.1", 0)
    load = FrameLoad(Sends("orders", QUEUES, 1), [f"127.0.0.1:{port}"], 1)
    try:
        with pytest.raises(GantryError, match=r"ended a connection|closed a connection"):
            await load.window(0.0, 10)
    finally:
        load.close()
        await server.stop(0)


@pytest.mark.parametrize("knows_keys", [True, False])
async def test_it_is_seen_whether_a_broker_stores_a_repeat_once(knows_keys: bool) -> None:
    stored: list[str] = []

    def store(request: RemotingCommand) -> RemotingCommand:
        header = from_ext(SendMessageRequestHeaderV2, request.ext)
        key = decode_properties(header.properties or "")["UNIQ_KEY"]
        if not (knows_keys and key in stored):
            stored.append(key)
        at = stored.index(key) if knows_keys else len(stored) - 1
        return reply(request, ext={"msgId": "X", "queueId": "0", "queueOffset": str(at)})

    server = RemotingServer(lambda _conn, request: store(request))
    port = await server.start("127.0.0.1", 0)
    try:
        queue = Queue("group", 0, f"127.0.0.1:{port}")
        assert await stores_once(queue) == knows_keys
    finally:
        await server.stop(0)
    assert len(stored) == (1 if knows_keys else 2)


async def test_a_broker_that_does_not_say_where_a_message_is_ends_the_measurement() -> None:
    server = RemotingServer(lambda _conn, request: reply(request))
    port = await server.start("127.0.0.1", 0)
    try:
        with pytest.raises(GantryError, match="did not say where"):
            await stores_once(Queue("group", 0, f"127.0.0.1:{port}"))
    finally:
        await server.stop(0)


# ---- what is made of it


def test_a_way_is_compared_with_the_other_one_of_the_same_run() -> None:
    one = {"messages_per_s": 900.0, "p99_ms": 3.0, "master_cpu_us": 50.0, "generator_cpu_us": 20.0}
    other = {"messages_per_s": 1200.0, "p99_ms": 2.0, "master_cpu_us": 40.0}
    found = compared(one, other | {"generator_cpu_us": 10.0}, "plain")
    assert found == one | {
        "ratio": 0.75,
        "plain_per_s": 1200.0,
        "plain_master_cpu_us": 40.0,
        "plain_generator_cpu_us": 10.0,
    }
    assert set(found) <= set(UNITS)


def test_cpu_is_told_per_message() -> None:
    seen = Window(
        operations=1000,
        messages=32_000,
        received_bytes=100,
        refused=0,
        seconds=2.0,
        latencies_s=Latencies([0.001] * 1000),
        generator_s=0.32,
    )
    found = figures(seen, [(1.0, 0.0), (1.64, 0.32)], ProcessGroup.roles)
    assert found["messages_per_s"] == 16_000
    assert found["generator_cpu_us"] == pytest.approx(10)
    assert found["master_cpu_us"] == pytest.approx(20)
    assert found["replicas_cpu_us"] == pytest.approx(10)


def test_lost_is_what_was_acknowledged_and_cannot_be_read() -> None:
    account = Account()
    for key in ("a", "b", "c"):
        account.acknowledge(key)
    account.read.update(["a", "a", "c", "never acknowledged"])
    assert (account.lost, account.duplicated) == ({"b"}, 1)


async def test_a_send_whose_answer_was_lost_is_counted_and_repeated_under_its_key() -> None:
    tried: list[tuple[str, int]] = []  # key, and how often it was sent before

    class Once:
        """Loses the first answer of each message."""

        async def call(self, _: str, command: RemotingCommand, __: float) -> RemotingCommand:
            header = from_ext(SendMessageRequestHeaderV2, command.ext)
            key = decode_properties(header.properties or "")["UNIQ_KEY"]
            times = sum(key == other for other, _ in tried)
            tried.append((key, times))
            if not times:
                raise ConnectionClosed("the master died")
            ext = {"msgId": "X", "queueId": "0", "queueOffset": "7"}
            return reply(command, ResponseCode.SUCCESS, ext=ext)

    class Known:
        async def find(self, topic: str) -> Route:
            return Route(topic, tuple(QUEUES), tuple(QUEUES))

        def refresh_soon(self, _: str) -> None:
            """Nothing changes."""

    account = Account()
    client = cast("Session", SimpleNamespace(calls=Once(), routes=Known()))
    async with Senders(client, "orders", account.acknowledge) as senders:
        while len(account.acknowledged) < 3:
            await asyncio.sleep(0)
        firsts = sum(times == 0 for _, times in tried)
        assert senders.lost_answers == firsts >= 3
    assert account.acknowledged <= {key for key, times in tried if times == 1}


def test_finished_rounds_outlive_the_process_that_counted_them(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    Rounds(path).add(Round(100, 5000, 90, 3, 210.0))
    interrupted = Rounds(path)
    interrupted.add(Round(50, 2000, 60, 0, 180.0))
    assert interrupted.close() == {
        "kills": 150,
        "acknowledged": 7000,
        "lost": 0,
        "lost_answers": 150,
        "duplicated": 3,
        "gap_ms": 210.0,
    }
    assert Rounds(path).all == []


def test_a_file_of_something_else_is_no_rounds(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    path.write_text("{}\n")
    with pytest.raises(GantryError, match="holds no rounds of kills"):
        Rounds(path)


def test_what_this_process_has_used_is_known() -> None:
    assert bytes_read(os.getpid()) >= 0
    assert cpu_of(os.getpid()) > 0
    assert peak_mb(os.getpid()) > 1
    nobody = 2**22 + 1
    with pytest.raises(GantryError, match="not known"):
        bytes_read(nobody)
    for asked in (cpu_of, peak_mb):
        with pytest.raises(GantryError, match="has ended"):
            asked(nobody)


WANTED = [
    ("send-64-1r", "messages_per_s", ">= 20000, 1 x java-default"),
    ("send-64-3r", "messages_per_s", ">= 12000, 1 x java-default, 4 x java-all-in-sync"),
    ("send-64-3r", "p99_ms", "<= 25"),
    ("batch32-1r", "messages_per_s", ">= 150000"),
    ("pull-hot", "messages_per_s", ">= 200000"),
    ("pop-64", "messages_per_s", "1 x java-5.5.0"),
    ("pop-timers", "late_p99_ms", "<= 1000"),
    ("pull-cold", "mb_per_s", ">= 100"),
    ("tls-64", "ratio", ">= 0.75"),
    ("repeats-64", "ratio", ">= 0.9"),
    ("queues-1m", "created_s", "<= 600"),
    ("queues-1m", "rss_mb", "<= 2048"),
    ("queues-1m", "restart_s", "<= 60"),
    ("queues-1m", "ratio", ">= 0.5"),
    ("quotas", "ratio", "<= 2"),
    ("master-kill", "gap_ms", "<= 500, always <= 1000"),
    ("master-stop", "gap_ms", "always <= 3500"),
    ("handover", "gap_ms", "always <= 500"),
    ("catch-up", "mb_per_s", ">= 100"),
    ("catch-up", "ratio", "<= 2"),
    ("kills-1000", "kills", ">= 1000"),
    ("kills-1000", "lost", "<= 0, always <= 0"),
    ("kills-1000", "duplicated", "<= 0, always <= 0"),
]


def bounds(goal: Goal) -> str:
    signs = ((">= ", goal.least), ("<= ", goal.most), ("always <= ", goal.worst))
    own = [f"{sign}{value:.10g}" for sign, value in signs if value is not None]
    return ", ".join(own + [f"{times:g} x {name}" for name, times in goal.times.items()])


def test_what_is_to_be_reached() -> None:
    found = [(name, goal.metric, bounds(goal)) for name, goal in (*BENCH.rows, *KILLS.rows)]
    assert [one for one in found if one[2]] == WANTED


def test_every_goal_has_a_unit_and_every_case_an_estimate() -> None:
    wish = Wish(runs=3, seconds=5.0, warmup_s=1.0, label="broker")
    assert {goal.metric for _, goal in (*BENCH.rows, *KILLS.rows)} <= set(UNITS)
    assert {name for name, _ in KILLS.rows} <= {case.name for case in BENCH.case}
    for case in BENCH.case:
        assert case.steps(wish) > 0
        assert case.seconds(wish) > 0
    usual = sum(case.seconds(wish) for case in BENCH.chosen(()))
    assert usual <= 35 * 60, "the documentation says how long all cases take"


def test_a_thousand_kills_run_only_when_named() -> None:
    assert "kills-1000" not in {case.name for case in BENCH.chosen(())}
    assert [case.name for case in BENCH.chosen(("kills-1000",))] == ["kills-1000"]


def test_a_reply_is_read_whatever_else_it_holds() -> None:
    header = b'{"code":0,"extFields":{"msgId":"X","nextBeginOffset":"7"},"opaque":3,"flag":1}'
    found = decode_reply(header)
    assert (found.opaque, found.ext) == (3, Numbers("7"))
    with pytest.raises(msgspec.MsgspecError):
        decode_reply(b'{"code":"zero"}')
