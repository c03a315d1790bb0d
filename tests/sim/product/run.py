"""One seed: a cluster, its clients, a schedule of faults, peace, and what it owes then.

python -m sim.product.run 17                 a seed
python -m sim.product.run 17 --faults …      the same with a part of its schedule
python -m sim.product.run 0-999              many; the first that fails is shrunk and printed
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sim.kernel.world import Violation
from sim.product import faults
from sim.product.runs import RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.product.faults import Fault


@dataclass
class Outcome:
    """What a run was.

    Attributes:
        seconds: of virtual time.
        acks: messages that were acknowledged.
        trace_hash: equal for equal runs.
        counters: rare things that happened.
    """

    seconds: float
    acks: int
    trace_hash: str
    counters: dict[str, int] = field(default_factory=dict)


def run(
    seed: int, schedule: Sequence[Fault] | None = None, *, kind: str = "product", **named: Any
) -> Outcome:
    """Run ``seed`` of a kind (``RUNS``); see ``ProductRun``.

    Raises:
        Violation: something was so that must never be so; its text names seed and time.
    """
    one = RUNS[kind](seed, schedule, **named)
    one.play()
    world = one.world
    return Outcome(world.now_us / 1e6, one.acks, world.trace_hash, dict(world.counters))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a seed fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("seeds", help="a number, or FROM-TO")
    parser.add_argument("--kind", choices=list(RUNS), default="product")
    parser.add_argument("--faults", nargs="*", help="instead of the seed's own schedule")
    parser.add_argument("--kinds", nargs="*", help="draw these kinds only")
    parser.add_argument("--logs", help="level of the product's logs, as in INFO")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--keep-going", action="store_true")
    asked = parser.parse_args(arguments)
    logging.getLogger("gantry").setLevel("CRITICAL")
    first, _, last = asked.seeds.partition("-")
    failed = 0
    began, seconds, acks = time.process_time(), 0.0, 0
    digest = hashlib.blake2b(digest_size=8)
    schedule = None if asked.faults is None else [faults.Fault.parse(one) for one in asked.faults]
    for seed in range(int(first), int(last or first) + 1):
        try:
            outcome = run(seed, schedule, kind=asked.kind, kinds=asked.kinds, logs=asked.logs)
        except Violation as violation:
            failed += 1
            print(f"seed {seed} FAILED: {violation}")
            if violation.__cause__ is not None and violation.__cause__.__cause__ is not None:
                traceback.print_exception(violation.__cause__.__cause__)
            if not asked.no_shrink and schedule is None:
                _print_shrunk(seed, asked.kind, asked.kinds)
            if not asked.keep_going:
                break
        else:
            seconds += outcome.seconds
            acks += outcome.acks
            digest.update(outcome.trace_hash.encode())
    spent = time.process_time() - began
    print(
        f"{seconds:.0f} simulated seconds, {acks} acknowledged, {spent:.1f} s of CPU, "
        f"{failed} failed, traces {digest.hexdigest()}"
    )
    return int(failed > 0)


def _print_shrunk(seed: int, kind: str, kinds: Sequence[str] | None) -> None:
    def fails(part: Sequence[Fault]) -> bool:
        try:
            run(seed, part, kind=kind)
        except Violation:
            return True
        return False

    short = faults.shrink(RUNS[kind](seed, kinds=kinds).schedule, fails)
    again = f"python -m sim.product.run {seed} --kind {kind} --faults {' '.join(map(str, short))}"
    print("shortest schedule found:", *short)
    print(f"again: {again}")


if __name__ == "__main__":
    sys.exit(main())
