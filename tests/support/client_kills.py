"""A foreign client that sends without a pause, while masters or fronts are killed.

The client is a program that prints a line of JSON per send (``interop/go``). It reaches the group
through one address, as through a Service; ``through`` says which processes that leads to. Kills
come at random phases. What is found is the gap that the client saw after each kill, what it lost,
and what is stored twice.

``python -m support.client_kills --kills 50 --through door --client cpp`` prints the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec
from gantry_controller.metadata.events import (
    CreateTopic,
    DeclareFronts,
    DeclareGroup,
    encode_event,
)
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.records import decode_record
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually, pull_command
from support.broker_processes import Group
from support.foreign_clients import CLIENTS, java_probe
from support.loopback_controller import CLUSTER, GROUP
from support.patience import PATIENCE_S

Victim = Literal["master", "replica", "front"]
Through = Literal["replica", "master", "any", "door", "front"]
TOPIC = "kills"
REMOTING_PORT, STORE_PORT = 10911, 10914
WAYS = {"door": 10910, "front": 10950}  # processes besides brokers, and their ports for clients
FRONTS = 2
PRODUCERS = CLIENTS | {"java": java_probe}
QUEUES = 16  # more than any client makes
READ_BYTES = 1 << 18
STILL_S = 3.0  # a replica that is stopped; a master until another one is elected besides
PERIOD_S = (1.0, 2.5)  # between a group at rest and the next kill


class Strike(NamedTuple):
    """What is to happen to whom; a front is the one that the client is connected to."""

    signal: str = "SIGKILL"
    victim: Victim = "master"


class Sent(msgspec.Struct):
    """One send, as the client saw it; times in ms since the epoch."""

    key: str
    begin: int
    end: int
    result: str
    msgId: str = ""  # noqa: N815 - as all programs print it

    @property
    def is_ok(self) -> bool:
        """Whether it was acknowledged."""
        return self.result == "SEND_OK"


class Kill(msgspec.Struct):
    """One signal.

    Attributes:
        at_ms: just before it.
        done_ms: the process had ended, or stood still.
        direct: the client was connected to this very process.
    """

    at_ms: int
    signal: str
    victim: Victim
    direct: bool
    done_ms: int = 0
    gap_ms: int = 0

    def loses_answer(self, sent: Sent) -> bool:
        """Whether the answer to this send may have been lost with the process."""
        is_under_way = sent.begin <= self.done_ms and sent.end >= self.at_ms
        return self.direct and self.signal == "SIGKILL" and is_under_way


class Service:
    """One address that leads to some process of the group, for as long as a connection lasts.

    A cluster's Service is no process: an end that comes with the last bytes goes on with them, and
    nobody is accepted to be led nowhere. A process that is dead is passed over at once; kube-proxy
    may lead to it, and its node refuse, until the kubelet has seen that it is.
    """

    def __init__(self, group: Group, through: Through) -> None:
        self.through = through
        self.targets: dict[socket.socket, str] = {}
        self.leaving = ""  # no member is sent clients once its end was asked for
        self._group = group
        self._serving: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server((group.network + ".250", 0))
        self._listener.setblocking(False)
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._accepting = asyncio.create_task(self._accept())

    def stop(self) -> None:
        self._accepting.cancel()
        self._listener.close()
        for task in list(self._serving):
            task.cancel()

    async def _accept(self) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            task = asyncio.create_task(self._serve(client))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        choices = self._choices()
        random.shuffle(choices)
        with client:
            for target in choices:
                with socket.socket() as member, contextlib.suppress(OSError):
                    member.setblocking(False)
                    await loop.sock_connect(member, (target, WAYS.get(self.through, REMOTING_PORT)))
                    self.targets[client] = target
                    try:
                        await _join(client, member)
                    finally:
                        del self.targets[client]
                    return

    def _choices(self) -> list[str]:
        if self.through == "door":
            return list(self._group.doors)
        if self.through == "front":
            fronts = self._group.fronts.items()
            return [ip for ip, one in fronts if one.process.poll() is None]
        alive = [
            ip
            for ip, one in sorted(self._group.processes.items())
            if one.process.poll() is None and ip != self.leaving
        ]
        master = self._group.master_ip if self._group.controller.group.master else ""
        if self.through == "master":
            return [master] if master in alive else []
        return [ip for ip in alive if ip != master] if self.through == "replica" else alive


async def _join(client: socket.socket, member: socket.socket) -> None:
    for one in (client, member):
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    copies = [
        asyncio.create_task(_copy(one, other))
        for one, other in ((client, member), (member, client))
    ]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, READ_BYTES):
            is_last = False
            with contextlib.suppress(BlockingIOError):
                is_last = not source.recv(1, socket.MSG_PEEK)
            if is_last:
                target.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            await loop.sock_sendall(target, data)


class Found(msgspec.Struct):
    """What a run has shown.

    Attributes:
        lost: acknowledged, and not stored.
        duplicated: stored more than once.
        unexplained: of these, more often than answers to them may have been lost with a process
            that the client was connected to.
    """

    kills: list[Kill]
    sent: int
    acknowledged: int
    lost: list[str]
    duplicated: list[str]
    unexplained: list[str]
    results: dict[str, int]

    def figures(self) -> str:
        """A line per kind of kill."""
        lines = []
        kinds = itertools.groupby(sorted(self.kills, key=_kind), key=_kind)
        for (victim, name, direct), kills in kinds:
            gaps = [one.gap_ms for one in kills]
            lines.append(
                f"{name} {victim} {'direct' if direct else 'passed on'}: {len(gaps)} kills,"
                f" gap median {statistics.median(gaps):.0f} ms, max {max(gaps)} ms,"
                f" over 1 s {sum(gap > 1000 for gap in gaps)}"
            )
        lines.append(
            f"{self.sent} sent, {self.acknowledged} acknowledged, {len(self.lost)} lost,"
            f" {len(self.duplicated)} duplicated, {len(self.unexplained)} of them without a lost"
            f" answer; {json.dumps(self.results)}"
        )
        return "\n".join(lines)


def _kind(kill: Kill) -> tuple[str, str, bool]:
    return kill.victim, kill.signal, kill.direct


@contextlib.asynccontextmanager
async def group_behind(directory: Path, through: Through) -> AsyncIterator[tuple[Group, Service]]:
    """Three members, and the address that routes name."""
    group = Group(directory)
    service = Service(group, through)
    is_split = through == "front"
    declared: list[DeclareGroup | DeclareFronts] = [
        DeclareGroup(
            cluster=CLUSTER,
            name=GROUP,
            uid="u",
            replicas=3,
            min_in_sync_replicas=2,
            route_address=None if is_split else service.address,
        )
    ]
    if is_split:
        group.env = {"GANTRY_STORE_PORT": str(STORE_PORT)}
        host, _, port = service.address.rpartition(":")
        declared.append(DeclareFronts(CLUSTER, "clients", host, int(port), 1))
    for event in declared:
        group.controller.quorum._apply(encode_event(event))
    group.controller.declare = lambda *_: None  # type: ignore[method-assign]
    try:
        await group.start()
        if through == "door":
            await group.open_doors()
        if is_split:
            await group.open_fronts(FRONTS)
        topic = Topic(read_queue_nums=4, write_queue_nums=4, perm=6)  # Node's client makes none
        group.controller.quorum._apply(
            encode_event(CreateTopic(cluster=CLUSTER, name=GROUP, topic=TOPIC, config=topic))
        )
        yield group, service
    finally:
        service.stop()
        await group.stop()


async def strike(group: Group, service: Service, what: Strike) -> Kill:
    """Send a process the signal, and start it again once it is gone, or let it go on."""
    if what.victim == "front":
        return await _strike_front(group, service, what)
    master = group.master_ip
    is_master = what.victim == "master"
    ip = master if is_master else random.choice(sorted({*group.processes} - {master}))
    process = group.processes[ip].process
    is_direct = service.through not in WAYS and ip in service.targets.values()
    kill = Kill(_now_ms(), what.signal, what.victim, is_direct)
    is_end = what.signal != "SIGSTOP"
    if is_end:
        service.leaving = ip
    process.send_signal(getattr(signal, what.signal))
    if is_end:
        await eventually(lambda: process.poll() is not None, "it ends")
    kill.done_ms = _now_ms()
    if ip == master:
        await eventually(lambda: group.master_ip != ip, "somebody else is the master")
    if is_end:
        group.boot(ip)
        service.leaving = ""
    else:
        await asyncio.sleep(STILL_S)
        process.send_signal(signal.SIGCONT)
    return kill


async def _strike_front(group: Group, service: Service, what: Strike) -> Kill:
    """End the one that most connections lead to."""
    assert what.signal in ("SIGKILL", "SIGTERM"), "a front that stands still is not taken out"
    await group.fronts_serve()
    ((ip, _),) = Counter(service.targets.values()).most_common(1)
    process = group.fronts[ip].process
    kill = Kill(_now_ms(), what.signal, what.victim, True)
    process.send_signal(getattr(signal, what.signal))
    await eventually(lambda: process.poll() is not None, "it ends")
    kill.done_ms = _now_ms()
    group.boot_front(ip)
    return kill


def _now_ms() -> int:
    return int(time.time() * 1000)


async def run(
    directory: Path,
    command: Sequence[str],
    strikes: Sequence[Strike],
    through: Through,
) -> Found:
    """One strike after the other; then all is read back."""
    async with group_behind(directory, through) as (group, service):
        client = await asyncio.create_subprocess_exec(
            *command,
            group.controller.address,
            TOPIC,
            "100000",
            stdout=asyncio.subprocess.PIPE,
        )
        sent: list[Sent] = []
        reading = asyncio.create_task(_read(client.stdout, sent))
        kills = []
        try:
            await eventually(lambda: any(one.is_ok for one in sent), "it sends")
            for what in strikes:
                await group.settled()
                await asyncio.sleep(random.uniform(*PERIOD_S))
                kills.append(await strike(group, service, what))
                await _sends_again(sent)
            await asyncio.sleep(1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                client.kill()
            await client.wait()
            await reading
        await group.settled()
        stored = await stored_keys(f"{group.master_ip}:10911")
    return judge(sent, kills, stored)


async def _sends_again(sent: Sequence[Sent]) -> None:
    so_far = sum(one.is_ok for one in sent)
    await eventually(lambda: sum(one.is_ok for one in sent) > so_far + 5, "it sends again")


async def _read(stream: asyncio.StreamReader | None, sent: list[Sent]) -> None:
    assert stream is not None
    while line := await stream.readline():
        if line.endswith(b"\n") and line.startswith(b"{"):
            sent.append(msgspec.json.decode(line, type=Sent))


async def stored_keys(master: str) -> Counter[str]:
    """The bodies of all records of the topic."""
    client = await RemotingClient().connect(master)
    found: Counter[str] = Counter()
    try:
        for queue in range(QUEUES):
            offset = 0
            while True:
                command = pull_command(offset, TOPIC)
                assert command.ext is not None
                command.ext["queueId"] = str(queue)
                answer = await client.call(command, PATIENCE_S)
                if answer.code != 0:
                    break
                position = 0
                while position < len(answer.body):
                    record = decode_record(answer.body, position)
                    found[record.body.decode()] += 1
                    position += record.size
                    offset = record.queue_offset + 1
    finally:
        client.close()
    return found


def judge(sent: Sequence[Sent], kills: list[Kill], stored: Counter[str]) -> Found:
    """The gap of each kill, and what became of the messages."""
    ends = [one.end for one in sent if one.is_ok]
    for number, kill in enumerate(kills):
        until_ms = kills[number + 1].at_ms if number + 1 < len(kills) else ends[-1] + 1
        pairs = itertools.pairwise(ends)
        gaps = [after - at for at, after in pairs if kill.at_ms < after <= until_ms]
        kill.gap_ms = max(gaps, default=0)
    results = Counter(one.result.split(":")[0] for one in sent)
    duplicated = [key for key, count in stored.items() if count > 1]
    by_key = {one.key: one for one in sent}
    unexplained = [
        key
        for key in duplicated
        if key not in by_key
        or stored[key] > 1 + sum(kill.loses_answer(by_key[key]) for kill in kills)
    ]
    return Found(
        kills=kills,
        sent=len(sent),
        acknowledged=len(ends),
        lost=[one.key for one in sent if one.is_ok and not stored[one.key]],
        duplicated=duplicated,
        unexplained=unexplained,
        results=dict(results),
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument(
        "--signal", default="SIGKILL", choices=("SIGKILL", "SIGTERM", "SIGSTOP", "both")
    )
    parser.add_argument("--victim", default="master", choices=get_args(Victim))
    parser.add_argument("--through", default="any", choices=get_args(Through))
    parser.add_argument("--client", default="go", choices=sorted(PRODUCERS))
    parser.add_argument("program", nargs="*", help="default: the producer of --client")
    args = parser.parse_args()
    names = ("SIGKILL", "SIGTERM") if args.signal == "both" else (args.signal,)
    strikes = [Strike(names[number % len(names)], args.victim) for number in range(args.kills)]
    command = args.program or PRODUCERS[args.client]().producer
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(run(Path(directory), command, strikes, args.through))
    print(found.figures())
    print("gaps", [(*_kind(one), one.gap_ms) for one in found.kills])


if __name__ == "__main__":
    main()
