"""A broker's time under a case of `gantry_lab bench broker`, by part: `make profile-broker`.

Runs a case, attaches py-spy to the broker that uses most CPU, and prints which share of the
interpreter's time each part of it took, as lines that `make performance` puts into the page. A
sample belongs to the part whose code runs, or which called what runs of Python's own. Needs py-spy
on the PATH (or its path in PY_SPY), and the right to attach to one's own processes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gantry_cli.output import print_json
from gantry_protocol.errors import GantryError

from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import cpu_of

CASES = ("send-64-1r", "send-64-3r", "batch32-1r", "pull-hot")
MEASURED_S, PROFILED_S, RATE = 25, 8, 400
WARM_S = 4.0  # of load, before it is profiled
LOAD_SHARE = 0.3  # of a processor: a broker that uses more is under load
START_WITHIN_S = 120.0
REST = "event loop, the rest"
PARTS = (
    ("gantry_broker/clients/pop", "pops: what is in flight, taking it, receipts"),
    ("gantry_broker/clients/core/pop", "pops: what is in flight, taking it, receipts"),
    ("gantry_broker/clients/pull", "pulls: checks, what is held, the answer"),
    ("gantry_broker/clients", "sends and other requests: checks, properties, the answer"),
    ("gantry_broker/member/writes", "sends and other requests: checks, properties, the answer"),
    ("gantry_broker/log", "log: places of records, writing and reading them, syncs"),
    ("gantry_broker/ha", "links to replicas"),
    ("gantry_broker/queues", "queues, from what is confirmed"),
    ("gantry_broker", "group, store, replica, what waits for confirmation"),
    ("gantry_protocol/process", REST),
    ("gantry_protocol/remoting/connection", "connections: reading and writing sockets"),
    ("gantry_protocol/records", "records: encoding, checksums"),
    ("gantry_protocol", "frames, headers, routing of requests"),
)
"""The first prefix that fits a sample's file decides."""
_FILE = re.compile(r"(gantry_\w+/[\w/]+\.py)")


def part_of(stack: str) -> str:
    """Whose code runs in a stack, outermost frame first."""
    for frame in reversed(stack.split(";")):
        found = _FILE.search(frame)
        if found is not None:
            return next((part for prefix, part in PARTS if found[1].startswith(prefix)), REST)
    return REST


def shares(raw: Iterable[str]) -> dict[str, float]:
    """Percent by part, of py-spy's raw format: a stack and how often it was seen."""
    seen: Counter[str] = Counter()
    for row in raw:
        stack, _, count = row.rpartition(" ")
        seen[part_of(stack)] += int(count)
    return {part: 100 * count / seen.total() for part, count in seen.most_common()}


def brokers_of(parent: int) -> list[int]:
    """The broker processes that `gantry_lab bench` started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(pid)
        for pid in children
        if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").endswith(b"\0broker")
    ]


def busiest(bench: subprocess.Popen[bytes]) -> int:
    """The broker that uses most CPU, once one is under load.

    Raises:
        GantryError: none is, or the benchmark ended.
    """
    until_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until_s:
        if bench.poll() is not None:
            raise GantryError(f"The benchmark ended with {bench.returncode} before the profile.")
        before = {pid: cpu_of(pid) for pid in brokers_of(bench.pid)}
        time.sleep(1.0)
        used = {pid: cpu_of(pid) - was for pid, was in before.items()}
        if used and max(used.values()) > LOAD_SHARE:
            return max(used, key=lambda pid: used[pid])
    raise GantryError(f"No broker was under load within {START_WITHIN_S:.0f} s.")


def profile(case: str, spy: str, directory: Path) -> None:
    out = directory / f"{case}.raw"
    command = [sys.executable, "-m", "gantry_lab", "bench", "broker", "--case", case, "--runs", "1"]
    with subprocess.Popen(
        [*command, "--seconds", str(MEASURED_S), "--warmup", "0", "--json"],
        stdout=subprocess.DEVNULL,
    ) as bench:
        try:
            pid = busiest(bench)
            time.sleep(WARM_S)
            record = ["record", "--gil", "--nonblocking", "--rate", str(RATE), "--format", "raw"]
            where = ["--duration", str(PROFILED_S), "--output", str(out), "--pid", str(pid)]
            subprocess.run([spy, *record, *where], check=True, stdout=subprocess.DEVNULL)
        finally:
            bench.terminate()
    for part, share in shares(out.read_text("utf-8").splitlines()).items():
        print_json(line("profile", case, part, "%", [share], digits=0))
    sys.stdout.flush()


def main(cases: list[str]) -> int:
    spy = os.environ.get("PY_SPY") or shutil.which("py-spy")
    if spy is None:
        print("py-spy is not installed: put it on the PATH, or its path in PY_SPY", file=sys.stderr)
        return 2
    before = machine()
    with tempfile.TemporaryDirectory() as directory:
        for case in cases or CASES:
            profile(case, spy, Path(directory))
    print_json({"bench": "profile", "machine": before})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
