"""Which lines of the product the simulator reaches: ``make sim-coverage``.

Runs seeds of every kind of run of the product and prints the share of lines of each room that some
seed has run, the rooms that are pure cores included. What no simulation can run is named in
``OUTSIDE`` with the reason, and is not counted.

    python -m sim.reach [SEEDS]      of each kind; 4 without
    python -m sim.reach 4 --files    each file, too
    python -m sim.reach 4 --missed 40    and the functions with the most lines that nobody ran
    python -m sim.reach 4 --kinds pops   by seeds of these kinds alone
"""

from __future__ import annotations

import argparse
import ast
import logging
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = {
    "controller": ROOT / "controller" / "gantry_controller",
    "broker": ROOT / "broker" / "gantry_broker",
    "operator": ROOT / "operator" / "gantry_operator",
}
TIERS = ("broker/tier",)  # components of their own, of several rooms
OUTSIDE = {  # of a folder, of a file, or of one class or function of it
    "broker/host/guard.py": "forks a process and watches it in /proc",
    "broker/tier/stores/objects.py": "speaks S3 by a library; the world has a bucket of its own",
    "broker/tier/stores/posix.py": "a directory as a store; likewise",
    "broker/tier/stores/opening.py": "makes one of these two",
    "broker/tier/stores/credentials.py": "of S3",
    "broker/tier/stores/calls.py": "threads around calls of these two",
    "broker/tier/stores/pooled.py": "the part that these two share",
    "broker/log/kernel_syncs.py::KernelSyncer": "io_uring; the world has a disk of its own",
    "broker/queues/kv.py::KeyValue._translated": "RocksDB's words; the world has its own store",
    "broker/queues/kv.py::_options": "likewise",
    "operator/operations/": "what people ask for by `kubectl gantry`, from no process of a cluster",
    "operator/preview/": "likewise",
    "operator/support/": "likewise",
    "operator/api/port_forward.py": "likewise",
    "operator/api/kube.py::KubeApi.read_log": "likewise",
    "operator/api/kube.py::KubeApi.ask_port": "likewise",
    "operator/api/kube.py::KubeApi.pass_to_port": "likewise",
    "operator/api/kube.py::KubeApi._forwarded": "likewise",
    "operator/api/kube.py::KubeApi._open": "likewise",
    "operator/api/kube.py::KubeApi.version": "likewise",
    "operator/plan/supposed.py::_after_of_controllers": "of a plan that `kubectl gantry` asks for",
    "operator/plan/supposed.py::_with_members": "likewise",
    "operator/plan/supposed.py::_new_quorum": "likewise",
    "operator/plan/supposed.py::_without_leader": "likewise",
    "operator/plan/supposed.py::_after_of_fronts": "likewise",
    "operator/models/generate.py": "writes files of this repository, from no process",
    "operator/models/schema.py": "the schema of these files",
    "operator/models/settings_page.py": "one of these files",
    "operator/models/reference_page.py": "likewise",
    "operator/models/base.py::Model.__get_pydantic_json_schema__": "likewise",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs and prints; 1 when a seed fails."""
    parser = argparse.ArgumentParser(description="lines of the product that the simulator reaches")
    parser.add_argument("seeds", nargs="?", type=int, default=4, help="of each kind of run")
    parser.add_argument("--files", action="store_true", help="print each file, too")
    parser.add_argument("--missed", type=int, default=0, help="functions to print, the worst first")
    parser.add_argument("--kinds", nargs="*", help="of runs, instead of all")
    asked = parser.parse_args(arguments)
    logging.getLogger("gantry").setLevel("CRITICAL")
    measured = Coverage(
        data_file=None, concurrency=["greenlet"], source=[str(path) for path in COMPONENTS.values()]
    )
    measured.start()
    failed = _play(asked.seeds, asked.kinds)
    measured.stop()
    print(_report(measured, files=asked.files, functions=asked.missed))
    return int(failed > 0)


def _play(seeds: int, kinds: list[str] | None) -> int:
    from sim.kernel.world import Violation
    from sim.product.run import run
    from sim.product.runs import RUNS

    failed = 0
    for kind in kinds or RUNS:
        for seed in range(seeds):
            print(f"\r{kind} {seed}      ", end="", file=sys.stderr, flush=True)
            try:
                run(seed, kind=kind)
            except Violation as violation:
                failed += 1
                print(f"\n{kind}: {str(violation).splitlines()[0]}", file=sys.stderr)
    print("\r", end="", file=sys.stderr)
    return failed


class _File(NamedTuple):
    """Lines of one file that count, and those of them that nobody ran."""

    name: str
    lines: set[int]
    missed: set[int]
    tree: ast.Module


def _files(measured: Coverage) -> Iterator[_File]:
    for component, folder in COMPONENTS.items():
        for path in sorted(folder.rglob("*.py")):
            name = f"{component}/{path.relative_to(folder)}"
            if name in OUTSIDE or f"{component}/{path.relative_to(folder).parts[0]}/" in OUTSIDE:
                continue
            _, lines, _, missed, _ = measured.analysis2(str(path))
            tree = ast.parse(path.read_text(encoding="utf-8"))
            out = {
                line
                for function, span in _functions(tree, classes=True)
                if f"{name}::{function}" in OUTSIDE
                for line in span
            }
            yield _File(name, set(lines) - out, set(missed) - out, tree)


def _functions(
    tree: ast.AST, within: str = "", *, classes: bool = False
) -> Iterator[tuple[str, range]]:
    """Names and lines of functions, and of classes if they are asked for."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = f"{within}{node.name}"
        if classes or not isinstance(node, ast.ClassDef):
            yield name, range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{name}.", classes=classes)


def _report(measured: Coverage, *, files: bool, functions: int) -> str:
    """The table of rooms, and what else is asked for."""
    found = list(_files(measured))
    rooms: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in found:
        rooms_of_one = [one.name.split("/")[0], str(Path(one.name).parent)]
        rooms_of_one += [room for room in TIERS if one.name.startswith(f"{room}/")]
        for room in dict.fromkeys(rooms_of_one):
            rooms[room][0] += len(one.lines)
            rooms[room][1] += len(one.missed)
    table = [f"{'room':40} {'lines':>7} {'reached':>8}"]
    table += [_row(room, *rooms[room]) for room in sorted(rooms)]
    if files:
        table += [_row(one.name, len(one.lines), len(one.missed)) for one in found]
    worst = sorted(
        (
            (len(one.missed & set(span)), f"{one.name}::{function}")
            for one in found
            for function, span in _functions(one.tree)
        ),
        reverse=True,
    )
    table += [f"{count:5} {name}" for count, name in worst[:functions] if count]
    return "\n".join(table)


def _row(name: str, lines: int, missed: int) -> str:
    return f"{name:40} {lines:7} {100 * (lines - missed) / max(lines, 1):7.1f}%"


if __name__ == "__main__":
    sys.exit(main())
