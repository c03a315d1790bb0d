"""Clients that speak gRPC at our proxy and at rocketmq-proxy, both before one broker group.

`make measure-grpc`, which needs Java and Maven. Three controllers and three brokers that sync every
message are processes on loopback; before them stand a proxy of ours and rocketmq-proxy 5.5.0 in
cluster mode, each with an official Java client of its own, which stays for all rounds. In each
round clients send through one proxy and then through the other, receive and acknowledge through
each, and remoting senders send straight to the master: alone, and beside clients at each proxy.
Then, before a fresh group, two proxies of ours and the master are killed in turn while messages are
consumed. Prints one JSON object per figure, as benchmarks do; everything shares the machine's
processors.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import msgspec
from gantry_cli.client import brokers, groups
from gantry_cli.client.routes import Queue
from gantry_cli.client.session import Session, session
from gantry_cli.output import print_json
from gantry_cli.progress import Estimate, estimated
from gantry_protocol.bodies import SubscriptionGroupConfig
from support import java

from gantry_lab.bench.broker.throughput import load_of
from gantry_lab.bench.broker.work import Sends
from gantry_lab.bench.load import FrameLoad
from gantry_lab.bench.members import Members
from gantry_lab.bench.ports import free_ports
from gantry_lab.bench.processes import HOST
from gantry_lab.bench.results import line, machine
from gantry_lab.bench.senders import make_topic
from gantry_lab.bench.usage import cpu_of
from gantry_lab.measure import grpc_account as account
from gantry_lab.measure import grpc_kills
from gantry_lab.measure.grpc_account import OURS, THEIRS, UNITS, Straight, Usage
from gantry_lab.measure.grpc_programs import JavaProcess, Proxies, load_client, rocketmq_proxy

CONTROLLERS = 3
STRAIGHT_TOPIC, GROUP = "gantry-bench", "bench-readers"
WARMUP_S = 1.0  # of remoting senders, in each window
REST_S = 2.0  # for which gRPC clients go on when these have ended
ANSWER_PATIENCE_S = 120.0  # a client tries a send again for a while, and a pop waits
COUNT_PATIENCE_S = 10.0
DRAIN_S = 180.0
POLL_S = 5.0  # of the last pops of a window, which find nothing
KILL_S = 6.0  # about, for an estimate


class GrpcWish(msgspec.Struct, frozen=True):
    """The wishes of the command line.

    Attributes:
        rounds: of rates; 0: none are measured.
        seconds: of each window.
        warmup_s: seconds for which each client sends, and receives, before the first round.
        threads: of each Java client, and remoting senders straight at the master.
        kills: of a proxy and the master in turn; 0: none.
    """

    rounds: int = 5
    seconds: float = 5.0
    warmup_s: float = 20.0
    threads: int = 16
    kills: int = 100


def say(bench: str, case: str, metric: str, *values: float) -> None:
    """Print a figure."""
    unit, digits = UNITS[metric]
    print_json(line(bench, case, metric, unit, values, digits=digits))
    sys.stdout.flush()


@asynccontextmanager
async def group(directory: Path) -> AsyncIterator[tuple[Members, Session]]:
    """Three controllers and three brokers of one group, all in sync."""
    async with (
        Members(directory, controllers=CONTROLLERS) as members,
        session(members.name_servers) as client,
    ):
        await members.start()
        yield members, client


async def make(client: Session, topics: Sequence[str], readers: Sequence[str]) -> None:
    """Topics, and consumer groups, which rocketmq-proxy refuses without a setting."""
    for topic in topics:
        await make_topic(client, topic)
    for broker_group in await brokers.broker_groups(client.routes):
        for name in readers:
            await groups.put_setting(client, broker_group, SubscriptionGroupConfig(name))


class Figures:
    """The figures of all rounds, by benchmark, case and metric."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def note(self, bench: str, case: str, **figures: float) -> None:
        """Those of one more round."""
        for metric, value in figures.items():
            self._values[bench, case, metric].append(value)

    def say(self) -> None:
        """Print all of them."""
        for place, values in self._values.items():
            say(*place, *values)


# ---- rates


class ProxySide:
    """One proxy, and the client at it.

    Args:
        name: of its benchmark.
        pid: of the proxy.
        client: a load.
        members: behind the proxy.
        threads: of the client.
    """

    def __init__(
        self, name: str, pid: int, client: JavaProcess, members: Members, threads: int
    ) -> None:
        self.name = name
        self._pid = pid
        self._client = client
        self._members = members
        self._threads = threads

    async def send(self, seconds: float) -> dict[str, float]:
        """The figures of a window of sends."""
        before = self._usage()
        seen = await self._sent(topic_of(self.name), seconds)
        return account.sent(seen, before, self._usage())

    async def send_beside(self, seconds: float) -> None:
        """Sends of which nobody consumes anything."""
        await self._sent(beside_of(self.name), seconds)

    async def receive(self, seconds: float) -> dict[str, float]:
        """The figures of a window in which messages are received and acknowledged."""
        before = self._usage()
        seen, after = await self._received(seconds)
        return account.rate(account.answer(seen), before, after)

    async def missing(self) -> int:
        """Messages that are still missing when all that comes was received."""
        (*_, missing), _ = await self._received(DRAIN_S)
        return int(missing)

    async def count(self) -> int:
        """Messages that its producer was acknowledged so far."""
        (found,) = await self._client.ask("COUNT", "COUNTED", COUNT_PATIENCE_S)
        return int(found)

    async def _received(self, seconds: float) -> tuple[list[str], Usage]:
        """What the client says, and what was used by then; no request waits any more."""
        idle = self._client.expect("IDLE")
        command, patience_s = f"RECEIVE {self._threads} {seconds}", seconds + ANSWER_PATIENCE_S
        words = await self._client.ask(command, "RECEIVED", patience_s)
        used = self._usage()
        async with asyncio.timeout(ANSWER_PATIENCE_S):
            await idle
        return words, used

    async def _sent(self, topic: str, seconds: float) -> account.Answer:
        command = f"SEND {topic} {self._threads} {seconds}"
        return account.answer(await self._client.ask(command, "SENT", seconds + ANSWER_PATIENCE_S))

    def _usage(self) -> Usage:
        master, _ = self._members.cpu_s()
        return Usage(cpu_of(self._pid), master, cpu_of(self._client.pid))


def topic_of(side: str) -> str:
    """The topic whose messages are received through a proxy again."""
    return f"gantry-bench-{side}"


def beside_of(side: str) -> str:
    """The topic that is only sent to."""
    return f"gantry-bench-{side}-beside"


class RemotingSenders:
    """Remoting senders straight at the master, one request outstanding each.

    Args:
        members: the group.
        queues: of the topic.
        count: how many.
    """

    def __init__(self, members: Members, queues: Sequence[Queue], count: int) -> None:
        self._members = members
        self._queues = queues
        self._count = count

    async def window(
        self, seconds: float, beside: ProxySide | None = None, per_second: float | None = None
    ) -> Straight:
        """A window of theirs, alone or beside gRPC clients at a proxy.

        Args:
            seconds: of the window.
            beside: whose clients send meanwhile; None: nobody's.
            per_second: the rate at which they send; None: as fast as they are answered.
        """
        work = Sends(STRAIGHT_TOPIC, self._queues, self._count)
        # Each window has its own connections: idle ones are ended between two of them.
        with closing(await asyncio.to_thread(load_of, work, self._queues, self._count)) as load:
            load.per_second = per_second
            return await straight(self._members, load, seconds, beside)


async def straight(
    members: Members, load: FrameLoad, seconds: float, beside: ProxySide | None
) -> Straight:
    """The figures of a window of this load."""
    loop = asyncio.get_running_loop()
    edges: list[tuple[int, float]] = []

    def note() -> None:
        """Called in the generator's thread."""
        counted = 0
        if beside is not None:
            counting = asyncio.run_coroutine_threadsafe(beside.count(), loop)
            counted = counting.result(COUNT_PATIENCE_S)
        edges.append((counted, members.cpu_s()[0]))

    async with asyncio.TaskGroup() as both:
        if beside is not None:
            both.create_task(beside.send_beside(WARMUP_S + seconds + REST_S))
        window = both.create_task(load.window(WARMUP_S, seconds, note))
    seen = window.result()
    (begun, used_s), (ended, used_end_s) = edges
    return Straight(seen.messages, ended - begun, seen.seconds, used_end_s - used_s)


async def rates(directory: Path, wish: GrpcWish, shown: Estimate) -> None:
    """All rounds; prints their figures."""
    figures = Figures()
    async with AsyncExitStack() as stack:
        members, named = await stack.enter_async_context(group(directory))
        topics = [topic for name in (OURS, THEIRS) for topic in (topic_of(name), beside_of(name))]
        await make(named, [STRAIGHT_TOPIC, *topics], [GROUP])
        proxies = Proxies(directory / "proxies", members.name_servers, 1)
        await stack.enter_async_context(proxies)
        (port,) = free_ports(1)
        theirs = rocketmq_proxy(directory / THEIRS, members.name_servers, port)
        await stack.enter_async_context(theirs)
        sides = {}
        for name, pid, endpoints in (
            (OURS, proxies.pid(0), proxies.endpoints),
            (THEIRS, theirs.pid, f"{HOST}:{port}"),
        ):
            home = directory / f"client-{name}"
            client = load_client(home, endpoints, topic_of(name), beside_of(name), GROUP)
            await stack.enter_async_context(client)
            sides[name] = ProxySide(name, pid, client, members, wish.threads)
        queues = (await named.routes.fetch(STRAIGHT_TOPIC)).writable
        senders = RemotingSenders(members, queues, wish.threads)
        for side in sides.values():
            await side.send(wish.warmup_s)
            await side.receive(wish.warmup_s)
        step = shown.part("rounds", wish.rounds, wish.rounds * round_s(wish))
        for number in range(wish.rounds):
            members.check()
            proxies.check()
            theirs.check()
            await one_round(number, wish, senders, sides, figures)
            step()
        for name, side in sides.items():
            figures.note(name, "receive", lost=await side.missing())
    figures.say()


async def one_round(
    number: int,
    wish: GrpcWish,
    senders: RemotingSenders,
    sides: dict[str, ProxySide],
    figures: Figures,
) -> None:
    """Each window once, in the order of this round."""
    order = account.order(number)
    sends = {name: await sides[name].send(wish.seconds) for name in order}
    received = {name: await sides[name].receive(wish.seconds) for name in order}
    alone = await senders.window(wish.seconds)
    for case, found in (("send", sends), ("receive", received)):
        figures.note(OURS, case, ratio=account.ratio(found[OURS], found[THEIRS]))
        for name in order:
            figures.note(name, case, **found[name])
    for name in order:
        beside = await senders.window(wish.seconds, sides[name])
        paced = await senders.window(wish.seconds, sides[name], account.PACE * alone.per_s)
        figures.note(name, "store", **account.store(alone, beside, paced))


def round_s(wish: GrpcWish) -> float:
    """About how long a round takes."""
    return 9 * wish.seconds + 5 * WARMUP_S + 4 * REST_S + 2 * POLL_S


# ---- kills


async def kills(directory: Path, wish: GrpcWish, shown: Estimate) -> None:
    """Kills under consumers; prints their figures."""
    async with AsyncExitStack() as stack:
        members, named = await stack.enter_async_context(group(directory))
        await make(named, [grpc_kills.TOPIC], [grpc_kills.PUSHED, grpc_kills.TAKEN])
        proxies = Proxies(directory / "proxies", members.name_servers, 2)
        await stack.enter_async_context(proxies)
        consumption = grpc_kills.Consumption(members, proxies, named, directory)
        step = shown.part("kills", wish.kills, wish.kills * KILL_S)
        stuck = await consumption.run(wish.kills, step)
    for metric, value in consumption.figures().items():
        say(OURS, "kills", metric, value)
    say(OURS, "kills", "stuck", stuck)
    say(OURS, "kills", "kills", wish.kills)
    for metric, values in consumption.gaps.items():
        say(OURS, "kills", metric, *values)


# ---- around it


async def main(wish: GrpcWish) -> None:
    """See the module; SIGTERM ends it as Ctrl-C does, with every process it has started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    before = machine()
    parts = [
        (rates, wish.rounds, wish.rounds * round_s(wish) + 4 * wish.warmup_s),
        (kills, wish.kills, wish.kills * KILL_S),
    ]
    chosen = [(part, seconds) for part, count, seconds in parts if count]
    with estimated(sum(seconds for _, seconds in chosen)) as shown:
        for part, _ in chosen:
            with tempfile.TemporaryDirectory() as directory:
                await part(Path(directory), wish, shown)
    print_json({"bench": OURS, "machine": before})


def planned(arguments: list[str]) -> GrpcWish:
    """The wishes of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gantry_lab.measure.grpc_proxies")
    usual = GrpcWish()
    parser.add_argument("--rounds", type=int, default=usual.rounds)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--warmup", type=float, default=usual.warmup_s, dest="warmup_s")
    parser.add_argument("--threads", type=int, default=usual.threads)
    parser.add_argument("--kills", type=int, default=usual.kills)
    return msgspec.convert(vars(parser.parse_args(arguments)), GrpcWish)


if __name__ == "__main__":
    import uvloop

    if java.MISSING:
        sys.exit(f"{' and '.join(java.MISSING)} not installed")
    uvloop.run(main(planned(sys.argv[1:])))
