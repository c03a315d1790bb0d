"""Which files of the product a send passes, and how many functions it calls there.

python -m sim.product.send_path            the files, in the order of the way

A producer sends one message after another to a group of three that stands well. A file is on the
way if one of its functions runs during every send: what a timer does now and then, during some of
them only, is not. What other processes do meanwhile, the controllers' for example, is not counted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import gantry_broker
import gantry_protocol
import greenlet
from gantry_cli.client.producer import Producer
from gantry_cli.client.session import session
from sim.kernel.world import World
from sim.product.cluster import Node, Simulation
from sim.product.machines import running
from sim.product.workload import TOPIC

if TYPE_CHECKING:
    from types import FrameType

WARM_UP, SENDS = 20, 20
PAUSE_S = 0.037  # in step with no timer of the product
BODY = bytes(200)
PRODUCER = "producer"
_COMPONENTS = [
    str(Path(package.__path__[0]).parent) + "/" for package in (gantry_broker, gantry_protocol)
]


class Call(NamedTuple):
    """A function of the product that ran.

    Attributes:
        process: whose.
        file: where it stands, from the component's folder.
        function: its qualified name.
    """

    process: str
    file: str
    function: str


class SendPath(NamedTuple):
    """What was seen.

    Attributes:
        broker: files on the way in the processes of master and replicas, in its order.
        client: those only on the way in the process of the client.
        calls: functions that a send calls in all these files; of the send with the fewest, since
            timers call some during the others.
    """

    broker: list[str]
    client: list[str]
    calls: int


class Tracer:
    """Notes calls while it is on, in whichever greenlet they run."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def start(self) -> None:
        """Note calls from here on."""
        self.calls = []
        greenlet.settrace(lambda *_: sys.setprofile(self._note))
        sys.setprofile(self._note)

    def stop(self) -> list[Call]:
        """Note no more; returns what was noted."""
        greenlet.settrace(None)
        sys.setprofile(None)
        return self.calls

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        thread = running()
        if event != "call" or thread is None:
            return
        name = frame.f_code.co_filename
        for folder in _COMPONENTS:
            if name.startswith(folder):
                call = Call(
                    thread.process.name, name.removeprefix(folder), frame.f_code.co_qualname
                )
                self.calls.append(call)


def traced_sends(seed: int) -> list[list[Call]]:
    """The calls in client and brokers during each of ``SENDS`` sends."""
    sends: list[list[Call]] = []

    async def produce(node: Node) -> None:
        tracer = Tracer()
        async with session(cluster.name_servers) as client:
            producer = Producer(client.routes, client.calls)
            for number in range(WARM_UP + SENDS):
                message = producer.message(TOPIC, BODY)
                if number >= WARM_UP:
                    tracer.start()
                try:
                    await producer.send(message)
                finally:
                    calls = tracer.stop()
                if number >= WARM_UP:
                    sends.append(calls)
                await asyncio.sleep(PAUSE_S)

    logging.getLogger("gantry").setLevel("CRITICAL")
    with Simulation(World(seed)) as cluster:
        cluster.boot()
        assert cluster.run(60, until=lambda: cluster.is_whole and cluster.is_set_up)
        cluster.client(PRODUCER, produce).boot()
        assert cluster.run(60, until=lambda: len(sends) == SENDS)
        names = {PRODUCER, *(node.name for node in cluster.brokers)}
    return [[call for call in calls if call.process in names] for calls in sends]


def send_path(seed: int = 1) -> SendPath:
    """The way of a send."""
    sends = traced_sends(seed)
    always = set.intersection(*({call[:2] for call in calls} for calls in sends))
    everywhere = set.intersection(*({call.file for call in calls} for calls in sends))
    broker = set.intersection(
        *({call.file for call in calls if call.process != PRODUCER} for calls in sends)
    )
    ordered = dict.fromkeys(call.file for call in sends[0])
    return SendPath(
        broker=[file for file in ordered if file in broker],
        client=[file for file in ordered if (PRODUCER, file) in always and file not in broker],
        calls=min(sum(call.file in everywhere for call in calls) for calls in sends),
    )


def main() -> None:
    """Print it."""
    path = send_path()
    for file in path.broker:
        print(file)
    print(f"{len(path.broker)} files in the brokers, {path.calls} calls")
    print(f"{len(path.client)} more in the client: {' '.join(path.client)}")


if __name__ == "__main__":
    main()
