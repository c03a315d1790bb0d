"""The write gap of a default client when a front ends, and when the master behind fronts does.

``python -m gantry_lab.measure.fronts``: three brokers, two fronts behind one address as behind a
Service, and one of RocketMQ's producers, which sends one message after the other. Kills come at
random phases, each once the group is whole again. The gap is the longest time between two
acknowledgements from a kill on. Prints one JSON object per figure, as benchmarks do; the client,
the proxy that stands for the Service and all servers share the machine's processors.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from gantry_cli.output import print_json
from support.client_kills import PRODUCERS, Found, Strike, run
from support.foreign_clients import BUILT

from gantry_lab.bench.results import line, machine

CASES = {
    "front-kill": Strike("SIGKILL", "front"),
    "front-end": Strike("SIGTERM", "front"),
    "master-kill": Strike("SIGKILL", "master"),
}


def say(case: str, found: Found) -> None:
    """The figures of one case."""
    for metric, unit, values in (
        ("gap_ms", "ms", [float(kill.gap_ms) for kill in found.kills]),
        ("kills", "1", [float(len(found.kills))]),
        ("acknowledged", "1", [float(found.acknowledged)]),
        ("failed", "1", [float(found.sent - found.acknowledged)]),
        ("lost", "1", [float(len(found.lost))]),
        ("duplicated", "1", [float(len(found.duplicated))]),
        ("unexplained", "1", [float(len(found.unexplained))]),
    ):
        print_json(line("fronts", case, metric, unit, values, digits=0))
    sys.stdout.flush()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--case", choices=sorted(CASES), action="append")
    parser.add_argument("--client", default="java", choices=sorted(PRODUCERS))
    args = parser.parse_args()
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")
    producer = PRODUCERS[args.client]().producer
    print_json({"bench": "fronts", "machine": machine()})
    for case in args.case or CASES:
        with tempfile.TemporaryDirectory(dir=BUILT) as directory:
            found = asyncio.run(run(Path(directory), producer, [CASES[case]] * args.kills, "front"))
        say(case, found)


if __name__ == "__main__":
    main()
