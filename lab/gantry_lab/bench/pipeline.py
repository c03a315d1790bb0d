"""How fast packs become columns, and how long a person waits for an audit.

The decoder is measured without Spark, in two processes that each decode a pack of the default size
over and over; every byte is compared with its sum, every body with its CRC. The audit is the whole
command as a person runs it, the start of Java and Python included.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from gantry_protocol.errors import GantryError
from gantry_protocol.tier.keys import PackKey, Shard

from gantry_lab.bench.material import LogMaker, a_pack, write_tier
from gantry_lab.bench.results import line

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from gantry_lab.bench.results import Line

BENCH = "pipeline"
CORES = 2
PACK_BYTES = 64 * 1024 * 1024
ROUND_S = 3.0  # a process decodes at least so long, and ends with a whole pack
PLACE = Shard("bench", "pack")
BUCKET_GROUPS = 3
BUCKET_PACKS = 4  # of each group
BUCKET_PACK_BYTES = 1024 * 1024
ANSWER_PATIENCE_S = 300.0
WORK = {"decode": "all columns", "check": "only the verdict, as the audit does it"}


class Share(NamedTuple):
    """What one process did in one run."""

    packs: int
    seconds: float


class _Account(msgspec.Struct):
    """What is read of the audit's answer."""

    faults: int
    seconds: float


def decoder(runs: int, progress: Callable[[str], None]) -> list[Line]:
    """Messages and bytes per second of `CORES` processes together, by kind of work."""
    progress("making a pack")
    _, log, count = LogMaker().piece(PACK_BYTES)
    pack = a_pack(PLACE, log)
    found = []
    for work in WORK:
        rates = [
            rate(shares) for shares in _shares(bytes(pack.data), pack.key, work, runs, progress)
        ]
        found += [
            line(BENCH, work, "messages_per_s", "1/s", [count * packs for packs in rates]),
            line(
                BENCH, work, "mb_per_s", "MB/s", [len(pack.data) * packs / 1e6 for packs in rates]
            ),
        ]
    return found


def rate(shares: list[Share]) -> float:
    """Packs per second of all processes together."""
    return sum(share.packs / share.seconds for share in shares)


def audit(directory: Path, runs: int, progress: Callable[[str], None]) -> list[Line]:
    """Seconds of `gantry pipeline audit` over a small tier, in all and by part.

    Raises:
        GantryError: it failed, or found something.
    """
    progress("making a small tier")
    write_tier(directory, BUCKET_GROUPS, BUCKET_PACKS, BUCKET_PACK_BYTES)
    whole, judging = [], []
    for _ in range(runs):
        progress("audit")
        began = time.monotonic()
        account = _audited(directory)
        whole.append(time.monotonic() - began)
        judging.append(account.seconds)
    starting = [all_s - part_s for all_s, part_s in zip(whole, judging, strict=True)]
    return [
        line(BENCH, "audit", "total_s", "s", whole),
        line(BENCH, "audit", "spark_start_and_end_s", "s", starting),
        line(BENCH, "audit", "judging_s", "s", judging),
    ]


def _audited(directory: Path) -> _Account:
    done = subprocess.run(  # noqa: S603 - this Python, this command
        [
            *(sys.executable, "-m", "gantry_cli", "pipeline", "audit", "--json"),
            *("--tier", directory.as_uri(), "--master", f"local[{CORES}]"),
        ],
        capture_output=True,
        text=True,
        timeout=ANSWER_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()[-500:]
        raise GantryError(f"The audit ended with {done.returncode}: {reason}")
    return msgspec.json.decode(done.stdout, type=_Account)


def _shares(
    data: bytes, key: PackKey, work: str, runs: int, progress: Callable[[str], None]
) -> list[list[Share]]:
    """What every process did, by run. They start each run together."""
    context = multiprocessing.get_context("spawn")
    cpus = sorted(os.sched_getaffinity(0))
    pipes = [context.Pipe() for _ in range(CORES)]
    workers = [
        context.Process(
            target=_work, args=(theirs, data, key, work, cpus[number % len(cpus)]), daemon=True
        )
        for number, (_, theirs) in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()
    for _, theirs in pipes:
        theirs.close()  # so that a worker that dies is an end of file, not a wait for ever
    found = []
    try:
        for ours, _ in pipes:
            ours.recv()  # it is warm
        for _ in range(runs):
            progress(work)
            for ours, _ in pipes:
                ours.send(ROUND_S)
            found.append([Share(*ours.recv()) for ours, _ in pipes])
    except EOFError as error:
        raise GantryError("A process that decodes packs ended by itself.") from error
    finally:
        for ours, _ in pipes:
            ours.close()
        for worker in workers:
            worker.join()
    return found


def _work(pipe: Connection, data: bytes, key: PackKey, work: str, cpu: int) -> None:
    """The body of one process: decode whenever it is told for how long."""
    os.sched_setaffinity(0, {cpu})
    once = _once(data, key, work)
    once()
    pipe.send(None)
    while True:
        try:
            seconds = pipe.recv()
        except EOFError:
            return
        began, packs = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            once()
            packs += 1
        pipe.send((packs, time.monotonic() - began))


def _once(data: bytes, key: PackKey, work: str) -> Callable[[], None]:
    from gantry_pipeline.decode.columns import schema_of
    from gantry_pipeline.decode.packs import Origin, check_pack, message_batches

    schema = schema_of("messages")
    origin = Origin(PLACE.cluster, PLACE.uid, 1, str(key))

    def decode() -> None:
        for _ in message_batches(data, PLACE, key, origin, schema):
            pass

    def check() -> None:
        check_pack(data, PLACE, key)

    return decode if work == "decode" else check
