"""Run seeds of the Raft world: ``python -m sim.raft.run FIRST [COUNT]`` with tests/ on the path.

Prints one line per seed: the trace's hash, simulated and real time, and rare events. Exit code 1 if
a seed breaks an invariant. Long runs and failing seeds are looked at with this.
"""

from __future__ import annotations

import sys
import time

from sim.kernel.world import SECOND, Violation
from sim.raft.world import RaftWorld


def main() -> int:
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    failures = 0
    simulated_s = 0.0
    began = time.process_time()
    totals: dict[str, int] = {}
    for seed in range(first, first + count):
        world = RaftWorld.swarm(seed)
        try:
            world.run()
        except Violation as violation:
            failures += 1
            print(violation)
        simulated_s += world.world.now_us / SECOND
        for name, number in world.world.counters.items():
            totals[name] = totals.get(name, 0) + number
        print(seed, world.world.trace_hash, f"{world.world.now_us / SECOND:.1f} s simulated")
    spent_s = time.process_time() - began
    print(f"{count} seeds, {failures} failed, {simulated_s:.0f} s simulated in {spent_s:.1f} CPU-s")
    print(" ".join(f"{name}={totals[name]}" for name in sorted(totals)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
