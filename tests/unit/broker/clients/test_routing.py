"""Where requests go: served, held, handed on, cut; over real sockets with imagined roles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from gantry_broker.clients import routing
from gantry_broker.clients.plain_sends import HOST
from gantry_broker.clients.resent import RESENT
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.frame import encode
from gantry_protocol.proxy_preamble import build_v1
from gantry_protocol.remoting import splice
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.send_answer import MAY_BE_STORED
from support.patience import PATIENCE_S
from support.routed_member import READ, WRITE, Member, ask, until


@pytest.fixture
async def members() -> AsyncIterator[tuple[Member, Member]]:
    one, other = await Member("one").start(), await Member("other").start()
    yield one, other
    await one.stop()
    await other.stop()


async def test_the_master_serves(members: tuple[Member, Member]) -> None:
    one, _ = members
    one.become_master()
    assert await ask(await one.client()) == "one"


async def test_a_replica_hands_on_and_says_for_whom(members: tuple[Member, Member]) -> None:
    one, other = members
    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client) == await ask(client) == "other"
    transport = client._transport
    assert transport is not None
    host, port = transport.get_extra_info("sockname")
    assert other.peers == [(f"{host}:{port}", True)] * 2
    assert (one.router.spliced, one.router.spliced_total) == (1, 1)


async def test_requests_wait_for_a_master(members: tuple[Member, Member]) -> None:
    one, other = members
    client = await one.client()
    asking = [asyncio.create_task(ask(client)) for _ in range(3)]
    await until(lambda: one.router.held == 1)
    other.become_master()
    one.follow(other.address)
    assert await asyncio.gather(*asking) == ["other"] * 3
    assert one.router.held == 0


async def test_requests_wait_for_this_very_broker(members: tuple[Member, Member]) -> None:
    one, _ = members
    client = await one.client()
    asking = asyncio.create_task(ask(client))
    await until(lambda: one.router.held == 1)
    one.become_master()
    assert await asking == "one"


async def test_nobody_waits_for_ever_and_who_did_looks_elsewhere(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client keeps a connection that answers it, so it would ask the same broker for ever."""
    monkeypatch.setattr(routing, "HOLD_S", 0.05)
    one, _ = members
    client = await one.client()
    answers = await asyncio.gather(*(client.call(request(READ), 5) for _ in range(3)))
    assert {answer.code for answer in answers} == {14}
    await until(lambda: client.closed)
    one.become_master()
    assert await ask(await one.client()) == "one"


async def test_a_refusal_says_whether_a_master_may_have_stored_the_send(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may take it for granted otherwise that what it was refused is not there."""
    monkeypatch.setattr(routing, "HOLD_S", 0.1)
    one, other = members
    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client) == "other"
    parked: list[RemotingCommand] = []
    other.router.processor = lambda conn, command: parked.append(command)
    given = asyncio.create_task(client.call(request(WRITE), 5))
    read = asyncio.create_task(client.call(request(309), 5))
    await until(lambda: len(parked) == 2)
    one.follow("")
    for conn in list(other.server.connections.values()):
        conn.abort()
    waiting = asyncio.create_task((await one.client()).call(request(WRITE), 5))
    assert [(answer.code, answer.ext) for answer in await asyncio.gather(given, read, waiting)] == [
        (14, {MAY_BE_STORED: "true"}),
        (14, None),
        (14, None),
    ]


async def test_a_master_that_does_not_accept_is_not_waited_for_longer_than_none(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets to its machine are lost, so that a connection is neither made nor refused."""
    monkeypatch.setattr(routing, "HOLD_S", 0.05)
    never = asyncio.Event()

    async def swallowed(*_: object, **__: object) -> None:
        await never.wait()

    monkeypatch.setattr(splice, "open_connection", swallowed)
    one, other = members
    one.follow(other.address)
    client = await one.client()
    assert (await client.call(request(READ), 5)).code == 14
    await until(lambda: client.closed)
    assert (one.router.held, one.router.spliced) == (0, 0)


async def test_the_number_of_waiting_connections_is_bounded(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "HELD_MAX", 1)
    one, _ = members
    waiting = asyncio.create_task(ask(await one.client()))
    await until(lambda: one.router.held == 1)
    assert (await (await one.client()).call(request(READ), 5)).code == 14
    one.become_master()
    assert await waiting == "one"


async def test_a_dead_master_is_waited_for_and_then_replaced(
    members: tuple[Member, Member],
) -> None:
    """The known master refuses connections: hold on, and ask who is master now."""
    one, other = members
    one.follow("127.0.0.1:1")
    asking = asyncio.create_task(ask(await one.client()))
    await until(lambda: one.asked > 0 and one.router.held == 1)
    other.become_master()
    one.follow(other.address)
    assert await asking == "other"


async def test_a_client_is_served_here_once_this_broker_is_the_master(
    members: tuple[Member, Member],
) -> None:
    one, other = members
    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client) == "other"
    one.become_master()
    assert await ask(client) == "one"
    assert (one.router.spliced, one.router.held) == (0, 0)
    assert not client.closed


async def test_a_client_moves_between_requests_where_possible(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer that is under way still arrives, and only then the next master is asked."""
    monkeypatch.setattr(routing, "MOVE_WITHIN_S", 60)
    one, other = members
    parked: list[tuple[Connection, RemotingCommand]] = []
    other.become_master()
    other.router.processor = lambda conn, command: parked.append((conn, command))
    one.follow(other.address)
    client = await one.client()
    asking = asyncio.create_task(ask(client))
    await until(lambda: len(parked) == 1)
    one.become_master()
    later = asyncio.create_task(ask(client))
    await asyncio.sleep(0.05)
    assert not later.done()
    conn, command = parked[0]
    conn.reply(command, reply(command, remark="in time"))
    assert await asking == "in time"
    assert await later == "one"
    assert len(parked) == 1


async def test_what_a_former_master_does_not_answer_goes_to_the_next_one(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "MOVE_WITHIN_S", 0.05)
    one, other = members
    other.become_master()
    asked: list[RemotingCommand] = []
    other.router.processor = lambda conn, command: asked.append(command)
    one.follow(other.address)
    client = await one.client()
    asking = asyncio.create_task(ask(client, WRITE))
    await until(lambda: len(asked) == 1)
    one.become_master()
    assert await asking == "one"
    assert one.router.budget.given_again == 1


async def test_a_dead_masters_clients_stay_and_ask_the_next_one(
    members: tuple[Member, Member],
) -> None:
    """Their requests go there once, with the heartbeat ahead, and sends are marked."""
    one, other = members
    third = await Member("third").start()
    heard: list[tuple[int, bool, set[int] | None]] = []

    def serve(conn: Connection, command: RemotingCommand) -> RemotingCommand:
        marks = conn.attrs.get(RESENT)
        heard.append((command.code, command.is_oneway, None if marks is None else set(marks)))
        return reply(command, remark="third")

    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client, RequestCode.HEART_BEAT) == "other"
    parked: list[RemotingCommand] = []
    other.router.processor = lambda conn, command: parked.append(command)
    asking = [asyncio.create_task(ask(client, code)) for code in (WRITE, READ, 309)]
    await until(lambda: len(parked) == 3)
    for conn in list(other.server.connections.values()):
        conn.abort()
    await until(lambda: one.router.held == 1 or one.asked > 0)
    third.become_master()
    third.router.processor = serve
    one.follow(third.address)
    assert [await one for one in asking] == ["third", "third", routing.NO_MASTER]
    marks = {parked[0].opaque}
    assert heard == [
        (RequestCode.HEART_BEAT, True, None),
        (WRITE, False, marks),
        (READ, False, marks),
    ]
    assert not client.closed
    await third.stop()


async def test_a_connection_is_not_handed_on_twice(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas that take each other for the master must not play ball with a client."""
    monkeypatch.setattr(routing, "PROXIED_HOLD_S", 0.02)
    monkeypatch.setattr(routing, "HOLD_S", 0.1)
    one, other = members
    one.follow(other.address)
    other.follow(one.address)
    client = await one.client()
    assert await ask(client) == routing.NO_MASTER
    assert other.router.spliced_total == 0
    assert other.asked > 0


async def test_a_handed_on_connection_waits_for_the_new_master_to_learn_of_its_election(
    members: tuple[Member, Member],
) -> None:
    one, other = members
    one.follow(other.address)
    asking = asyncio.create_task(ask(await one.client()))
    await until(lambda: other.router.held == 1)
    other.become_master()
    assert await asking == "other"


@pytest.mark.parametrize("epoch", [4, 5])
async def test_what_was_handed_over_for_an_earlier_epoch_is_not_served(
    members: tuple[Member, Member], epoch: int
) -> None:
    """Whoever handed it over may have given it to the master of the epoch in between."""
    one, other = members
    one.follow(other.address)
    one.epoch = epoch
    other.epoch = 3
    asking = asyncio.create_task(ask(await one.client()))
    await until(lambda: other.router.held == 1)
    other.epoch = 5
    other.become_master()
    if epoch == 5:
        assert await asking == "other"
        assert one.router.moved_total == 0
        return
    await until(lambda: other.router.held == 0)
    assert (other.peers, asking.done()) == ([], False)
    one.epoch = 5
    assert await asking == "other", "it is handed over anew, for the master that there is"
    assert one.router.moved_total >= 1


async def test_what_waits_where_it_was_served_in_an_earlier_epoch_is_not_served_again(
    members: tuple[Member, Member],
) -> None:
    """A master that was deposed does not see that whoever passed a client on has hung up."""
    one, other = members
    one.epoch = other.epoch = 3
    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client, WRITE) == "other"
    other.follow("")
    other.router.end_sessions(list(other.server.connections.values()))
    asking = asyncio.create_task(ask(client, WRITE))
    await until(lambda: other.router.held == 1)
    one.epoch = 4
    one.become_master()
    assert await asking == "one"
    assert other.router.held == 1, "it does not see that it is waited for no more"
    other.epoch = 5
    other.become_master()
    await until(lambda: other.router.held == 0)
    assert (len(one.peers), len(other.peers)) == (1, 1)


async def test_a_connection_of_an_earlier_epoch_of_the_same_master_is_handed_over_anew(
    members: tuple[Member, Member],
) -> None:
    """What comes late on it may have been given to the master in between."""
    one, other = members
    one.epoch = other.epoch = 3
    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client, WRITE) == "other"
    other.follow("")
    other.epoch = 5
    other.become_master()
    asking = asyncio.create_task(ask(client, WRITE))
    await until(lambda: one.asked > 0)
    assert (len(other.peers), asking.done()) == (1, False)
    one.epoch = 5
    assert await asking == "other"
    assert len(other.peers) == 2


async def test_an_epoch_that_is_none_is_not_believed(members: tuple[Member, Member]) -> None:
    one, _ = members
    one.epoch = 5
    one.become_master()
    client = await one.client()
    for text in ("", "-1", "x", "9" * 5_000):
        answer = await client.call(request(RequestCode.GANTRY_PASSED_ON, {"epoch": text}), 5)
        assert answer.code == 0
        assert await ask(client) == "one"


async def test_a_leaving_master_holds_writes_and_serves_reads(
    members: tuple[Member, Member],
) -> None:
    one, other = members
    one.become_master()
    reader, writer = await one.client(), await one.client()
    assert await ask(writer, WRITE) == "one"
    one.leaving = True
    assert await ask(reader) == "one"
    writing = asyncio.create_task(ask(writer, WRITE))
    await until(lambda: one.router.held == 1)
    other.become_master()
    one.follow(other.address)
    assert await writing == "other"


async def test_a_leaving_master_lets_go_of_what_was_handed_to_it(
    members: tuple[Member, Member],
) -> None:
    """Handed on by both, a send could reach the next master twice, once without a mark."""
    one, other = members
    one.become_master()
    one.leaving = True
    reader, writer = await handed_over_request(one)
    await until(lambda: one.router.held == 1)
    other.become_master()
    one.follow(other.address)
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read(1000) == b""
    assert other.peers == []
    writer.close()
    await writer.wait_closed()


async def test_a_send_at_a_master_that_leaves_reaches_the_next_one_once_and_marked(
    members: tuple[Member, Member],
) -> None:
    one, other = members
    replica = await Member("replica").start()
    came: list[object] = []

    def serve(conn: Connection, command: RemotingCommand) -> RemotingCommand:
        came.append(conn.attrs.get(RESENT))
        return reply(command, remark="other")

    try:
        one.become_master()
        replica.follow(one.address)
        client = await replica.client()
        assert await ask(client) == "one"
        one.leaving = True
        asking = asyncio.create_task(ask(client, WRITE))
        await until(lambda: one.router.held == 1)
        other.become_master()
        other.router.processor = serve
        one.follow(other.address)
        await until(lambda: replica.asked > 0)
        replica.follow(other.address)
        assert await asking == "other"
    finally:
        await replica.stop()
    assert came == [{client._opaque}]


async def handed_over_request(member: Member) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that comes through another replica, with one write on it."""
    host, port = member.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(build_v1(("10.0.0.9", 1), ("10.0.0.1", 2)) + encode(request(WRITE)))
    return reader, writer


async def test_what_comes_just_after_a_hand_over_is_let_go_at_once(
    members: tuple[Member, Member],
) -> None:
    """A replica's pipe still leads here for a moment; its client must not wait for the bound."""
    one, other = members
    one.become_master()
    one.leaving = True
    other.become_master()
    one.follow(other.address)
    reader, writer = await handed_over_request(one)
    async with asyncio.timeout(routing.PROXIED_HOLD_S / 2):
        assert await reader.read(1000) == b""
    writer.close()
    await writer.wait_closed()


async def test_a_leaving_replica_hands_nothing_on_twice(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never was the successor's predecessor: two that leave could play ball for ever."""
    monkeypatch.setattr(routing, "PROXIED_HOLD_S", 0.05)
    one, other = members
    other.become_master()
    one.follow(other.address)
    one.leaving = True
    one.router.role_changed()
    reader, writer = await handed_over_request(one)
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read(1000) == b""
    assert one.router.spliced_total == 0
    writer.close()
    await writer.wait_closed()


async def test_a_deposed_master_passes_its_clients_on(
    members: tuple[Member, Member],
) -> None:
    """Those with sessions, or that have sent something, at once; the others when they speak."""
    one, other = members
    one.become_master()
    idle, writer, stranger, sender = [await one.client() for _ in range(4)]
    for client in (idle, writer):
        assert await ask(client, RequestCode.HEART_BEAT) == "one"
    assert await ask(stranger) == await ask(sender) == "one"
    list(one.server.connections.values())[3].attrs[HOST] = ("127.0.0.1", 1)
    one.leaving = True
    writing = asyncio.create_task(ask(writer, WRITE))
    await until(lambda: one.router.held == 1)
    other.become_master()
    one.follow(other.address)
    one.router.end_sessions(list(one.server.connections.values()))
    assert await writing == "other"
    await until(
        lambda: one.router.spliced == 3 and len(other.peers) == 3
    )  # two heartbeats, one write
    assert [await ask(client) for client in (idle, writer, stranger)] == ["other"] * 3
    assert not any(client.closed for client in (idle, writer, stranger))
    assert one.router.spliced == 4
    assert await ask(sender) == "other"


async def test_what_a_deposed_master_has_not_answered_goes_to_the_next_one(
    members: tuple[Member, Member],
) -> None:
    """It cannot know what becomes of a send; the next one looks, so the send is marked."""
    one, other = members
    asked: list[tuple[Connection, RemotingCommand]] = []
    marks: list[object] = []

    def park(conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.HEART_BEAT:
            return reply(command)
        return asked.append((conn, command))

    def serve(conn: Connection, command: RemotingCommand) -> RemotingCommand:
        marks.append(conn.attrs.get(RESENT))
        return reply(command, remark="other")

    one.become_master()
    one.router.processor = park
    client = await one.client()
    await ask(client, RequestCode.HEART_BEAT)
    asking = asyncio.create_task(ask(client, WRITE))
    await until(lambda: len(asked) == 1)
    other.become_master()
    other.router.processor = serve
    one.serving, one.master = False, other.address
    one.router.end_sessions(list(one.server.connections.values()))
    ((conn, command),) = asked
    conn.reply(command, reply(command, 14, "too late"))
    assert await asking == "other"
    assert marks[-1] == {command.opaque}
    assert not client.closed


@pytest.mark.parametrize("is_reworded_later", [False, True], ids=["at-once", "after-a-wait"])
@pytest.mark.parametrize("is_same_process", [False, True], ids=["another", "itself"])
async def test_the_next_master_is_given_a_requests_own_words(
    members: tuple[Member, Member], is_reworded_later: bool, is_same_process: bool
) -> None:
    """The last one may have had it served as another: under them its signature does not fit."""
    one, other = members
    asked: list[tuple[Connection, RemotingCommand]] = []
    heard: list[dict[str, str] | None] = []

    def park(conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.HEART_BEAT:
            return reply(command)
        if command.code == READ or not is_reworded_later:
            conn.reword(command, {"queueId": "4096"})
        if command.code == READ:
            return reply(command)  # its words are nobody else's
        return asked.append((conn, command))

    def serve(conn: Connection, command: RemotingCommand) -> RemotingCommand:
        if command.code != RequestCode.HEART_BEAT:
            heard.append(command.ext)
        return reply(command, remark="next")

    one.become_master()
    one.router.processor = park
    client = await one.client()
    await ask(client, RequestCode.HEART_BEAT)
    await client.call(request(READ, {"queueId": "3"}), 5)
    said = {"queueId": "0", "Signature": "s"}
    asking = asyncio.create_task(client.call(request(WRITE, said), 5))
    await until(lambda: len(asked) == 1)
    ((conn, command),) = asked
    for number in ("1", "2"):  # a queue may be looked up more than once
        conn.reword(command, {**said, "queueId": number})
    one.serving = False
    one.router.end_sessions(list(one.server.connections.values()))
    assert command.ext == {**said, "queueId": "2"}  # whoever serves it still may read on
    if is_same_process:
        one.become_master()
        one.router.processor = serve
    else:
        other.become_master()
        other.router.processor = serve
        one.follow(other.address)
    assert (await asking).remark == "next"
    assert heard == [said]


async def test_a_master_that_is_cut_off_lets_its_clients_go(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came through a replica stay there, and their requests go to the next master."""
    monkeypatch.setattr(routing, "PROXIED_HOLD_S", 0.05)
    one, other = members
    asked: list[RemotingCommand] = []

    def serve(conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.HEART_BEAT:
            return reply(command, remark="other")
        return asked.append(command)

    other.become_master()
    other.router.processor = serve
    one.follow(other.address)
    direct, through = await other.client(), await one.client()
    for client in (direct, through):
        assert await ask(client, RequestCode.HEART_BEAT) == "other"
    asking = [asyncio.create_task(client.call(request(WRITE), 5)) for client in (direct, through)]
    await until(lambda: len(asked) == 2)
    other.serving = False  # and its processor stays: it may go on
    other.router.let_go(list(other.server.connections.values()))
    refusal = await asking[0]
    assert (refusal.code, refusal.ext) == (14, {MAY_BE_STORED: "true"})
    await until(lambda: direct.closed)
    stranger = await other.client()
    assert (await stranger.call(request(READ), 5)).code == 14
    await until(lambda: stranger.closed)
    one.become_master()
    assert (await asking[1]).remark == "one"
    assert not through.closed


async def test_a_session_that_is_too_long_to_repeat_is_cut(members: tuple[Member, Member]) -> None:
    one, other = members
    one.become_master()
    client = await one.client()
    await client.call(request(RequestCode.HEART_BEAT, None, bytes(100_000)), 5)
    other.become_master()
    one.follow(other.address)
    one.router.end_sessions(list(one.server.connections.values()))
    await until(lambda: client.closed)


async def test_cut_all_waits_for_quiet_pipes(members: tuple[Member, Member]) -> None:
    one, other = members
    other.become_master()
    one.follow(other.address)
    client = await one.client()
    assert await ask(client) == "other"
    await one.router.cut_all()
    assert one.router.spliced == 0
    await until(lambda: client.closed)


async def test_a_client_that_leaves_is_forgotten(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the latest when its time is over: a held connection is not read from."""
    monkeypatch.setattr(routing, "HOLD_S", 0.05)
    one, _ = members
    client = await one.client()
    asking = asyncio.create_task(ask(client))
    await until(lambda: one.router.held == 1)
    client.close()
    with pytest.raises(RemotingError):
        await asking
    await until(lambda: one.router.held == 0)


async def test_a_closed_router_lets_everybody_go_and_holds_nobody(
    members: tuple[Member, Member],
) -> None:
    one, _ = members
    asking = asyncio.create_task(ask(await one.client()))
    await until(lambda: one.router.held == 1)
    one.router.close()
    with pytest.raises(RemotingError):
        await asking
    assert (await (await one.client()).call(request(READ), 5)).code == 14
    assert one.router.held == 0
