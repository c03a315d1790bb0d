"""Which lines of the product the simulator reaches: ``make sim-coverage``.

Runs seeds of every kind of run of the product and prints the share of lines of each room that some
seed has run, the rooms that are pure cores included. What the simulator cannot reach is named in
``OUTSIDE`` with the reason; it counts as missed all the same.

    python -m sim.reach [SEEDS]      of each kind; 4 without
    python -m sim.reach 4 --files    each file, too
"""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections import defaultdict
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = {
    "controller": ROOT / "controller" / "gantry_controller",
    "broker": ROOT / "broker" / "gantry_broker",
    "operator": ROOT / "operator" / "gantry_operator",
}
OUTSIDE = {
    "broker/host/guard.py": "forks a process and watches it in /proc",
    "broker/tier/pack_process.py": "a process of its own; the world packs in a thread",
    "broker/tier/stores/objects.py": "speaks S3 by a library; the world has a bucket of its own",
    "broker/tier/stores/posix.py": "a directory as a store; likewise",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs and prints; 1 when a seed fails."""
    parser = argparse.ArgumentParser(description="lines of the product that the simulator reaches")
    parser.add_argument("seeds", nargs="?", type=int, default=4, help="of each kind of run")
    parser.add_argument("--files", action="store_true", help="print each file, too")
    asked = parser.parse_args(arguments)
    logging.getLogger("gantry").setLevel("CRITICAL")
    measured = Coverage(
        data_file=None, concurrency=["greenlet"], source=[str(path) for path in COMPONENTS.values()]
    )
    measured.start()
    failed = _play(asked.seeds)
    measured.stop()
    _print(measured, files=asked.files)
    return int(failed > 0)


def _play(seeds: int) -> int:
    from sim.kernel.world import Violation
    from sim.product.kinds import RUNS
    from sim.product.run import run

    failed = 0
    for kind in RUNS:
        for seed in range(seeds):
            print(f"\r{kind} {seed}      ", end="", file=sys.stderr, flush=True)
            try:
                run(seed, kind=kind)
            except Violation as violation:
                failed += 1
                print(f"\n{kind}: {str(violation).splitlines()[0]}", file=sys.stderr)
    print("\r", end="", file=sys.stderr)
    return failed


def _print(measured: Coverage, *, files: bool) -> None:
    rooms: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    single: list[tuple[str, int, int]] = []
    for component, folder in COMPONENTS.items():
        for path in sorted(folder.rglob("*.py")):
            _, lines, _, missed, _ = measured.analysis2(str(path))
            name = f"{component}/{path.relative_to(folder)}"
            single.append((name, len(lines), len(missed)))
            for key in (str(Path(name).parent), component):
                rooms[key][0] += len(lines)
                rooms[key][1] += len(missed)
    out = io.StringIO()
    print(f"{'room':32} {'lines':>7} {'reached':>8}", file=out)
    for room in sorted(rooms):
        count, missed = rooms[room]
        if count:
            print(f"{room:32} {count:7} {100 * (count - missed) / count:7.1f}%", file=out)
    if files:
        for name, count, missed_lines in single:
            if count:
                share = 100 * (count - missed_lines) / count
                why = OUTSIDE.get(name, "")
                print(f"{name:56} {count:5} {share:7.1f}%  {why}", file=out)
    print(out.getvalue(), end="")


if __name__ == "__main__":
    sys.exit(main())
