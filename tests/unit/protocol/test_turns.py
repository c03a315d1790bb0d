"""Whose requests are served when: the two rows, how long the second rests, who stands where."""

import asyncio
from itertools import pairwise

import pytest
from gantry_protocol.command import RemotingCommand
from gantry_protocol.frame import encode
from gantry_protocol.remoting import turns as turns_module
from gantry_protocol.remoting.server import Connection, Handler, RemotingServer
from gantry_protocol.remoting.turns import (
    FIRST_ROW_S,
    OWED_S,
    REST,
    REST_DEAR,
    SECOND_ROW_S,
    SHARE_S,
    Load,
    Standing,
    Turns,
)
from support.patience import PATIENCE_S


class Clock:
    """Time passes as work is done."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Peer:
    """Somebody whose every share takes so long."""

    def __init__(self, name: str, clock: Clock, costs_s: float, said: list[str]) -> None:
        self.name, self.clock, self.costs_s, self.said = name, clock, costs_s, said
        self.is_dear = False

    def take_turn(self) -> bool:
        self.clock.now_s += self.costs_s
        self.said.append(self.name)
        return self.is_dear


@pytest.mark.parametrize(
    ("first", "second", "dear", "rests"),
    [
        pytest.param(0.0, 0.002, 0.0, 0.0, id="nobody-else"),
        pytest.param(0.1, 0.002, 0.0, REST * 0.002, id="a-busy-first-row"),
        pytest.param(0.05, 0.002, 0.0, REST * 0.001, id="half-as-busy"),
        pytest.param(0.005, 0.002, 0.002, REST_DEAR * 0.002, id="dear-beside-anybody"),
        pytest.param(0.0, 0.2, 0.2, 0.0, id="dear-alone"),
    ],
)
def test_the_second_row_rests_for_the_first(
    first: float, second: float, dear: float, rests: float
) -> None:
    load = Load()
    load.note(0.5, first * 0.5, 0.0)
    assert load.rest_s(second, dear) == pytest.approx(rests)


def test_what_the_second_row_took_does_not_make_the_first_look_idle() -> None:
    """Else an attack that starves a victim would look like one that disturbs nobody."""
    load = Load()
    for _ in range(10):
        load.note(0.2, 0.0005, 0.196)  # a request of 0.2 s, and what the victim gets in between
    assert load.rest_s(0.2, 0.2) == pytest.approx(0.2 * REST_DEAR)


def _standing(*shares: tuple[float, int, bool]) -> Standing:
    standing = Standing()
    for share in shares:
        standing.note(*share)
    return standing


@pytest.mark.parametrize(
    ("shares", "asks_much", "is_dear"),
    [
        pytest.param([(0.00006, 1, False)] * 50, False, False, id="one-send-at-a-time"),
        pytest.param(
            [(0.00006, 1, False)] * 9 + [(0.01, 1, False)], False, False, id="kept-waiting"
        ),
        pytest.param(
            [(0.005, 1, False)] * 9 + [(0.00006, 1, False)], False, False, id="a-busy-machine"
        ),
        pytest.param([(0.001, 20, True)], True, False, id="more-than-a-share"),
        pytest.param([(0.001, 20, True), (0.0001, 2, False)], False, False, id="the-end-of-it"),
        pytest.param([(0.001, 1, False)] * 8, True, True, id="dear-requests"),
        pytest.param([(0.2, 1, False)] * 4, True, True, id="very-dear-ones"),
    ],
)
def test_where_a_connection_stands(
    shares: list[tuple[float, int, bool]], asks_much: bool, is_dear: bool
) -> None:
    standing = _standing(*shares)
    assert (standing.asks_much, standing.is_dear) == (asks_much, is_dear)


async def _until_served(said: list[str], count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(said) < count:
            await asyncio.sleep(0)


async def test_who_asks_for_little_goes_first() -> None:
    clock, said = Clock(), list[str]()
    turns = Turns(clock)
    for name in ("much-1", "much-2"):
        turns.wait(Peer(name, clock, 0.0001, said), first=False)
    turns.wait(Peer("little", clock, 0.0001, said), first=True)
    await _until_served(said, 3)
    assert said == ["little", "much-1", "much-2"]
    assert (len(turns), turns.put_off) == (0, 3)


async def test_a_turn_ends_and_the_rest_comes_in_the_next() -> None:
    clock, said = Clock(), list[str]()
    turns = Turns(clock)
    for number in range(5):
        turns.wait(Peer(str(number), clock, SECOND_ROW_S * 0.6, said), first=False)
    turns_taken = []
    while len(said) < 5:
        before = len(said)
        await asyncio.sleep(0)
        turns_taken.append(len(said) - before)
    assert [one for one in turns_taken if one] == [2, 2, 1]


async def test_the_second_row_waits_while_it_rests() -> None:
    clock, said = Clock(), list[str]()
    turns = Turns(clock)
    clock.now_s += FIRST_ROW_S
    turns.used(FIRST_ROW_S)
    dear = Peer("dear", clock, 0.2, said)
    dear.is_dear = True
    turns.wait(dear, first=False)
    await _until_served(said, 1)
    turns.wait(dear, first=False)
    turns.wait(Peer("little", clock, 0.0001, said), first=True)
    await _until_served(said, 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert said == ["dear", "little"], "0.2 s were used, and the first row was busy"
    for passed_s, count in [(0.7, 3), (0.2, 5)]:
        clock.now_s += passed_s
        turns.wait(Peer("little", clock, 0.0001, said), first=True)
        await _until_served(said, count)
    assert said[2:] == ["little", "little", "dear"], "it rests 0.8 s"
    turns.close()


async def test_what_others_work_for_a_request_counts_like_its_own_time() -> None:
    clock, said = Clock(), list[str]()
    turns = Turns(clock)

    class Batch(Peer):
        def take_turn(self) -> bool:
            turns.owe(OWED_S / 4)
            return super().take_turn()

    clock.now_s += FIRST_ROW_S
    turns.used(FIRST_ROW_S)
    turns.wait(Batch("batch", clock, 0.0001, said), first=False)
    await _until_served(said, 1)
    turns.settle(OWED_S / 4)
    turns.wait(Batch("batch", clock, 0.0001, said), first=False)
    rests_s = REST_DEAR * OWED_S / 4
    clock.now_s += 0.9 * rests_s
    turns.wait(Peer("little", clock, 0.0001, said), first=True)
    await _until_served(said, 2)
    clock.now_s += 0.2 * rests_s
    turns.wait(Peer("little", clock, 0.0001, said), first=True)
    await _until_served(said, 4)
    assert said == ["batch", "little", "little", "batch"]
    turns.close()


async def test_the_second_row_waits_while_too_much_is_owed() -> None:
    """However long it has rested: else the replicas would fall behind."""
    clock, said = Clock(), list[str]()
    turns = Turns(clock)
    turns.owe(OWED_S)
    turns.wait(Peer("batch", clock, 0.0001, said), first=False)
    turns.wait(Peer("little", clock, 0.0001, said), first=True)
    await _until_served(said, 1)
    clock.now_s += 10.0
    turns.wait(Peer("little", clock, 0.0001, said), first=True)
    await _until_served(said, 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert said == ["little", "little"]
    turns.settle(OWED_S / 2)
    await _until_served(said, 3)
    assert said == ["little", "little", "batch"]
    turns.close()


class _Deaf(asyncio.Transport):
    """Takes everything."""

    def pause_reading(self) -> None:
        """Nothing comes."""

    def resume_reading(self) -> None:
        """Nothing comes."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:  # type: ignore[override]
        """Gone."""


@pytest.fixture
async def served_by():
    """A server with a handler, that listens."""
    servers = []

    async def serve(handler: Handler, clock: Clock) -> RemotingServer:
        server = RemotingServer(handler, turns=Turns(clock))
        servers.append(server)
        await server.start("127.0.0.1", 0)
        return server

    yield serve
    for server in servers:
        await server.stop(0)


@pytest.mark.parametrize(
    ("costs_s", "shares"),
    [
        pytest.param(SHARE_S * 0.3, [4, 4, 4], id="time"),
        pytest.param(2 * SHARE_S, [1] * 12, id="one-at-least"),
        pytest.param(0.0, [12], id="all-at-once"),
    ],
)
async def test_a_share_ends_with_its_time(served_by, costs_s: float, shares: list[int]) -> None:
    """What came in one piece is served in several turns, in order."""
    clock, served, ends = Clock(), list[int](), list[int]()

    def handler(_: Connection, command: RemotingCommand) -> None:
        served.append(command.opaque)
        clock.now_s += costs_s

    connection = Connection(await served_by(handler, clock), 1)
    connection.connection_made(_Deaf())
    frames = [encode(RemotingCommand(code=10, opaque=number)) for number in range(12)]
    connection.data_received(b"".join(frames))
    ends.append(len(served))
    async with asyncio.timeout(PATIENCE_S):
        while len(served) < len(frames):
            clock.now_s += 1.0  # however long the second row rests
            await asyncio.sleep(0)
            if len(served) > ends[-1]:
                ends.append(len(served))
    connection.connection_lost(None)
    assert served == list(range(12))
    assert [after - before for before, after in pairwise([0, *ends])] == shares


async def test_who_comes_in_a_turn_that_is_over_is_put_off() -> None:
    clock = Clock()
    turns = Turns(clock)
    assert turns.is_open
    turns.used(FIRST_ROW_S + 0.001)
    assert not turns.is_open
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns.is_open, "the loop has looked at everything else"
    turns.close()


def test_a_share_is_shorter_than_a_turn() -> None:
    assert turns_module.SHARE_S <= SECOND_ROW_S <= FIRST_ROW_S
