"""The cost of a million lite topics to a broker group, whose masters die: `make measure-lites`.

Prints one JSON object per figure, as benchmarks do. Three controllers and three brokers that sync
every message are processes on loopback; all that sends and consumes is this process.

Every lite topic gets a message. Clients of one group, of 2,000 lite topics each, take and
acknowledge them one batch after the other; meanwhile the master is killed, and a producer goes on
sending to lite topics at random. It ends when every message that was acknowledged was consumed, and
what a consumer did not acknowledge has come again. Then one more master is killed, and the next one
is asked by every client for what is new: nothing is, and it has to look at every lite topic to know
so; asked once more it knows where nothing can be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from gantry_cli.client import brokers, groups, topics
from gantry_cli.client.session import Session, session
from gantry_cli.output import print_json
from gantry_cli.progress import Estimate, estimated
from gantry_protocol.bodies import SubscriptionGroupConfig, decode_body
from gantry_protocol.bodies.lite import BrokerLiteInfo
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import LITE_TYPE
from gantry_protocol.settings.lite import BIND_TOPIC
from gantry_protocol.settings.priority import MESSAGE_TYPE

from gantry_lab.bench.load import FrameLoad
from gantry_lab.bench.members import Members
from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import rss_mb
from gantry_lab.measure.lite_clients import (
    GROUP,
    PARENT,
    LiteAccount,
    LiteConsumers,
    LiteSends,
    LiteWriter,
)

QUEUES = 8  # of the parent
CONNECTIONS, OUTSTANDING = 32, 8  # of who fills: so many requests under way on each
FILL_PATIENCE_S = 3_600.0
RESUME_PATIENCE_S = 60.0
STILL_S = 120.0  # without a new message the rest counts as lost
LOOK_S = 0.02
CONTROLLERS = 3
SENT_PER_S, CONSUMED_PER_S = 6_000.0, 2_000.0  # about, on two processors; only for an estimate


class LiteWish(msgspec.Struct, frozen=True):
    """The wishes of the command line.

    Attributes:
        topics: how many lite topics.
        kills: of masters, while consumers take messages.
        invisible_s: for how long a message that was handed out is nobody else's.
    """

    topics: int = 1_000_000
    kills: int = 3
    invisible_s: int = 20


def say(metric: str, unit: str, *values: float) -> None:
    """Print a figure."""
    digits = 1 if unit == "s" else 0
    print_json(line("lites", "many", metric, unit, values, digits=digits))
    sys.stdout.flush()


def by_thousands(step: Callable[[], None]) -> Callable[[int], None]:
    """Makes a step for each thousand; tell the result how many have come."""
    done = 0

    def told(more: int) -> None:
        nonlocal done
        for _ in range((done + more) // 1000 - done // 1000):
            step()
        done += more

    return told


def part(shown: Estimate, what: str, count: int, per_s: float) -> Callable[[int], None]:
    """A part of what is to be done: so many of something, at so many a second."""
    return by_thousands(shown.part(f"thousands {what}", max(count // 1000, 1), count / per_s))


def first_ms(pops: list[tuple[float, float]], killed_s: float) -> float | None:
    """From a kill to the first answer with messages that was asked for after it; None: none yet."""
    answered = [answered_s for asked_s, answered_s in pops if asked_s >= killed_s]
    return 1000 * (min(answered) - killed_s) if answered else None


# ---- phases


async def make(client: Session) -> None:
    """The parent, and the group that consumes."""
    attributes = {MESSAGE_TYPE: LITE_TYPE}
    await topics.create_topic(client, PARENT, queues=QUEUES, cluster=None, attributes=attributes)
    (group,) = await brokers.broker_groups(client.routes)
    config = SubscriptionGroupConfig(GROUP, attributes={BIND_TOPIC: PARENT})
    await groups.put_setting(client, group, config)
    deadline_s = time.monotonic() + RESUME_PATIENCE_S
    while not (await client.routes.fetch(PARENT)).writable:
        if time.monotonic() > deadline_s:
            raise GantryError(f"The topic {PARENT} has no route.")
        await asyncio.sleep(LOOK_S)


async def fill(
    client: Session, wish: LiteWish, account: LiteAccount, told: Callable[[int], None]
) -> None:
    """A message to each lite topic; ``told`` hears of each thousand."""
    queues = (await client.routes.fetch(PARENT)).writable
    slots = CONNECTIONS * OUTSTANDING
    work = LiteSends(iter(range(wish.topics)), queues, slots, account, told)
    with closing(FrameLoad(work, [queues[0].address], CONNECTIONS, OUTSTANDING)) as load:
        seen = await load.finish(FILL_PATIENCE_S)
    say("topics", "1", wish.topics)
    say("sends_per_s", "1/s", seen.per_second)
    say("made_s", "s", seen.seconds)


def memory(members: Members, when: str) -> None:
    """The memory of the master, and of each of the others."""
    say(f"{when}_master_mb", "MB", rss_mb(members.pid(members.master)))
    others = [name for name in members.names if name != members.master]
    say(f"{when}_replica_mb", "MB", *(rss_mb(members.pid(name)) for name in others))


class Consumption:
    """Clients take all that there is while masters are killed.

    Args:
        members: the processes.
        wish: what was asked for.
        account: what became of each message.
        consumers: take them.
        writer: sends on.
        shown: is told how far it has come.
    """

    def __init__(
        self,
        members: Members,
        wish: LiteWish,
        account: LiteAccount,
        consumers: LiteConsumers,
        writer: LiteWriter,
        shown: Estimate,
    ) -> None:
        self._members = members
        self._wish = wish
        self._account = account
        self._consumers = consumers
        self._writer = writer
        self._tasks: list[asyncio.Task[None]] = []
        self._shown = shown
        self._told = part(shown, "consumed", wish.topics, CONSUMED_PER_S)
        self._seen = 0
        self._moved_s = time.monotonic()

    async def run(self) -> None:
        """Until every message is consumed and done, or nothing happens any more."""
        began_s = time.monotonic()
        self._tasks = [asyncio.create_task(one.run()) for one in (self._consumers, self._writer)]
        try:
            await self._kills()
            self._writer.stops = True
            while not self._is_done():
                await self._look()
            took_s = self._moved_s - began_s
            self._consumers.stops = True
            await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        say("consumed_s", "s", took_s)
        say("consumed_per_s", "1/s", self._account.consumed / took_s)

    async def _kills(self) -> None:
        firsts, gaps, backs = [], [], []
        for number in range(1, self._wish.kills + 1):
            share = number * self._wish.topics // (self._wish.kills + 1)
            while self._account.consumed < share or self._writer.times.last_s is None:
                if self._still_s() > STILL_S + self._wish.invisible_s:
                    raise GantryError(f"Nothing was consumed for {self._still_s():.0f} s.")
                await self._look()
            first, gap = await self._kill()
            firsts.append(first)
            gaps.append(gap)
            await self._members.start()
            backs.append(time.monotonic() - self._members.killed_s)
            said = f"a lite message after {first:.0f} ms, write gap {gap:.0f} ms"
            self._shown.say(f"master {number} killed", said)
        if firsts:
            say("kills", "1", len(firsts))
            say("first_ms", "ms", *firsts)
            say("gap_ms", "ms", *gaps)
            say("whole_s", "s", *backs)

    async def _kill(self) -> tuple[float, float]:
        """Kill the master; ms until a lite message is handed out, and of the producer's gap."""
        await self._members.until_settled()
        self._consumers.pops.clear()
        await self._members.kill_master()
        killed_s, times = self._members.killed_s, self._writer.times
        while True:
            first = first_ms(self._consumers.pops, killed_s)
            if first is not None and times.last_s is not None and times.last_s > killed_s:
                break
            if time.monotonic() > killed_s + RESUME_PATIENCE_S:
                raise GantryError(f"No lite message in {RESUME_PATIENCE_S:.0f} s after a kill.")
            await self._look()
        gap = times.longest(killed_s)
        assert gap is not None, "something was acknowledged before and after"
        return first, gap.ms

    async def _look(self) -> None:
        """Wait a little; raise what ended a task, or a process."""
        await asyncio.sleep(LOOK_S)
        self._members.check()
        for task in self._tasks:
            if task.done():
                task.result()
        consumed = self._account.consumed
        if consumed > self._seen:
            self._told(consumed - self._seen)
            self._seen, self._moved_s = consumed, time.monotonic()

    def _is_done(self) -> bool:
        if not self._tasks[1].done():
            return False  # the producer has its last answer to come
        if self._account.missing:
            return self._still_s() > STILL_S + self._wish.invisible_s
        # What is not known to be done may come again; once its time is over it would have.
        return not self._account.undone or self._still_s() > 2 * self._wish.invisible_s

    def _still_s(self) -> float:
        """The time since a message was consumed that nobody had."""
        return time.monotonic() - self._moved_s


async def looks(members: Members, client: Session, consumers: LiteConsumers) -> None:
    """Have a new master look through all lite topics, in which nothing is new."""
    epoch = await members.kill_master()
    while (await members.start()).master_epoch == epoch:
        await asyncio.sleep(LOOK_S)  # nobody has noticed yet that the master is gone
    await consumers.follow()
    found = await info(client)
    say("known_topics", "1", found.current_lmq_num)
    say("known_subscriptions", "1", found.lite_subscription_count)
    count = 0
    for metric in ("look_s", "look_again_s"):
        began_s = time.monotonic()
        count += await consumers.look()
        say(metric, "s", time.monotonic() - began_s)
    say("look_found", "1", count)


async def info(client: Session) -> BrokerLiteInfo:
    """The master's account of lite topics."""
    queue = (await client.routes.fetch(PARENT)).writable[0]
    command = request(RequestCode.GET_BROKER_LITE_INFO)
    answer = await client.calls.call(queue.address, command, RESUME_PATIENCE_S)
    return decode_body(BrokerLiteInfo, answer.body)


async def main(wish: LiteWish) -> None:
    """See the module."""
    before = machine()
    account = LiteAccount()
    invisible_ms = 1000 * wish.invisible_s
    total_s = wish.topics / SENT_PER_S + wish.topics / CONSUMED_PER_S
    with tempfile.TemporaryDirectory() as name, estimated(total_s) as shown:
        async with (
            Members(Path(name), controllers=CONTROLLERS) as members,
            session(members.name_servers) as client,
            LiteConsumers(members.name_servers, wish.topics, invisible_ms, account) as consumers,
        ):
            await members.start()
            await make(client)
            memory(members, "empty")
            told = part(shown, "made", wish.topics, SENT_PER_S)
            await fill(client, wish, account, told)
            await members.until_settled()
            memory(members, "filled")
            began_s = time.monotonic()
            await consumers.subscribe()
            say("clients", "1", consumers.count)
            say("subscribed_s", "s", time.monotonic() - began_s)
            writer = LiteWriter(client, wish.topics, account)
            await Consumption(members, wish, account, consumers, writer, shown).run()
            memory(members, "consumed")
            await looks(members, client, consumers)
    say("acknowledged", "1", account.sent)
    say("consumed", "1", account.consumed)
    say("lost", "1", account.missing)
    say("twice", "1", account.twice)
    say("twice_done", "1", account.twice_done)
    say("stored_twice", "1", account.stored_twice)
    print_json({"bench": "lites", "machine": before})


def planned(arguments: list[str]) -> LiteWish:
    """The wishes of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gantry_lab.measure.lites")
    usual = LiteWish()
    parser.add_argument("topics", type=int, nargs="?", default=usual.topics, metavar="TOPICS")
    parser.add_argument("--kills", type=int, default=usual.kills)
    parser.add_argument("--invisible-s", type=int, default=usual.invisible_s, metavar="SECONDS")
    return msgspec.convert(vars(parser.parse_args(arguments)), LiteWish)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(planned(sys.argv[1:])))
