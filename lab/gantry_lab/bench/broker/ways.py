"""The same sends in two ways, in turn: what TLS costs, and what de-duplication does.

Each run measures one way after the other, so that a machine that slows down slows both; the ratio
is of those two.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench import tls
from gantry_lab.bench.broker import frames
from gantry_lab.bench.broker.target import ProcessGroup
from gantry_lab.bench.broker.throughput import SENDERS, TOPIC, load_of
from gantry_lab.bench.broker.work import Sends, Single
from gantry_lab.bench.senders import body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gantry_cli.client.routes import Queue

    from gantry_lab.bench.load import FrameLoad
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage
    from gantry_lab.bench.tls import Trust

EVERY_SEND_IS_STORED = {"GANTRY_REPEAT_WINDOW_S": "0"}
ANSWER_PATIENCE_S = 15.0


async def encrypted(stage: BenchStage) -> Runs:
    """Sends by TLS 1.3 and plain ones, to one broker at one port."""
    variables, trust = tls.made(stage.directory())
    async with stage.group(1, variables) as (members, client):
        target = ProcessGroup(members, client)
        queues = await target.queues(TOPIC)
        with (
            closing(_sends(queues, None)) as plain,
            closing(_sends(queues, trust)) as secure,
        ):
            return await _in_turn(stage, (target, secure), (target, plain), "plain")


async def repeats(stage: BenchStage) -> Runs:
    """Sends to a broker that knows recent keys, and to one that stores every send.

    Raises:
        GantryError: one of them does not do what its setting says.
    """
    async with (
        stage.group(1) as (members, client),
        stage.group(1, EVERY_SEND_IS_STORED) as (other_members, other_client),
    ):
        target = ProcessGroup(members, client)
        other = ProcessGroup(other_members, other_client)
        queues, other_queues = await target.queues(TOPIC), await other.queues(TOPIC)
        if not await stores_once(queues[0]) or await stores_once(other_queues[0]):
            raise GantryError("A broker does not treat repeated sends as its setting says.")
        with (
            closing(_sends(queues, None)) as with_keys,
            closing(_sends(other_queues, None)) as without_keys,
        ):
            return await _in_turn(stage, (target, with_keys), (other, without_keys), "off")


async def _in_turn(
    stage: BenchStage,
    way: tuple[ProcessGroup, FrameLoad],
    other: tuple[ProcessGroup, FrameLoad],
    name: str,
) -> Runs:
    """A window of the other way and one of the way in question, in each run; see `compared`."""

    async def once() -> dict[str, float]:
        without = await stage.window(*other)
        return compared(await stage.window(*way), without, name)

    return await stage.repeat(once)


def compared(
    found: Mapping[str, float], without: Mapping[str, float], name: str
) -> dict[str, float]:
    """The figures of the way in question, those of the other one under its name, and the ratio."""
    return dict(found) | {
        "ratio": found["messages_per_s"] / without["messages_per_s"],
        f"{name}_per_s": without["messages_per_s"],
        f"{name}_master_cpu_us": without["master_cpu_us"],
        f"{name}_generator_cpu_us": without["generator_cpu_us"],
    }


async def stores_once(queue: Queue) -> bool:
    """Whether a message that comes again by another connection is stored once."""
    frame = frames.send(0, TOPIC, queue, body(0)).next()
    offsets = []
    for _ in range(2):
        work = Single(frame)
        with closing(load_of(work, [queue], 1)) as load:
            await load.finish(ANSWER_PATIENCE_S)
        offsets.append(work.offset)
    if not all(offsets):
        raise GantryError("A broker did not say where it stored a message.")
    return offsets[0] == offsets[1]


def _sends(queues: Sequence[Queue], trust: Trust | None) -> FrameLoad:
    return load_of(Sends(TOPIC, queues, SENDERS), queues, SENDERS, trust=trust)
