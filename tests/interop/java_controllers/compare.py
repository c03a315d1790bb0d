"""The Java controllers of RocketMQ 5.3.3 under the load of `gantry_lab bench controller`.

Fetches them with Maven once, starts three on loopback with their own defaults, puts the same load
on them that ours get, and does so for DLedger and for JRaft:

    PYTHONPATH=tests .venv/bin/python tests/interop/java_controllers/compare.py

Lines carry the benchmark's name `java-dledger` or `java-jraft`. What a Java controller cannot do
within the time is told on stderr, by the case's own sentence; the other cases go on. Needs Java 17
or later and Maven. Every process that it starts ends with it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_lab.bench.ports import free_ports
from support import java_load

if TYPE_CHECKING:
    from collections.abc import Iterator

POM = Path(__file__).parent / "pom.xml"
CASES = ("write-64x1", "write-64x16", "readindex-64x16", "groups-capacity", "mass-failover")
MAIN = "org.apache.rocketmq.controller.ControllerStartup"
HEAP = "512m"
START_S = 60.0
CASE_S = 240.0  # then it is ended, and said so


def main() -> int:
    """Measure; 1 if a case had no figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=["dledger", "jraft"])
    parser.add_argument("--case", action="append", help=f"by default {', '.join(CASES)}")
    parser.add_argument("--runs", default="3", help="of each case; mass-failover has one")
    parser.add_argument("--seconds", default="2")
    given = parser.parse_args()
    if java_load.missing():
        print(f"{java_load.missing()} not installed", file=sys.stderr)
        return 2
    jars = java_load.classpath(POM, "java-controllers.classpath")
    failed = False
    for kind in given.kind or ["dledger", "jraft"]:
        for case in given.case or CASES:
            runs = "1" if case == "mass-failover" else given.runs  # its groups take long to make
            with quorum(kind, jars) as address:
                wanted = ["--against", address, "--runs", runs, "--seconds", given.seconds]
                failed |= not java_load.measured("controller", f"java-{kind}", case, wanted, CASE_S)
    return int(failed)


@contextmanager
def quorum(kind: str, jars: str) -> Iterator[str]:
    """Three fresh controllers; the address of one that serves."""
    ports = free_ports(6)
    home = Path(tempfile.mkdtemp(prefix="gantry-java-"))
    running = []
    try:
        for node in range(3):
            config = home / f"{node}.properties"
            config.write_text(properties(kind, node, ports, home), "utf-8")
            arguments = ["-c", str(config)]
            running.append(java_load.started(home, str(node), jars, MAIN, arguments, HEAP))
        java_load.served(ports[:3], START_S)
        yield f"127.0.0.1:{ports[0]}"
    finally:
        java_load.ended(running, home)


def properties(kind: str, node: int, ports: list[int], home: Path) -> str:
    """What upstream's sample configuration sets, and nothing else."""
    remoting, raft = ports[:3], ports[3:]
    common = {
        "controllerStorePath": home / f"store-{node}",
        "configStorePath": home / f"saved-{node}.properties",
    }
    if kind == "dledger":
        peers = ";".join(f"n{one}-127.0.0.1:{port}" for one, port in enumerate(remoting))
        own = {
            "controllerType": "DLedger",
            "controllerDLegerGroup": "bench",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{node}",
            "bindAddress": "127.0.0.1",
        }
    else:
        own = {
            "controllerType": "jRaft",
            "jRaftGroupId": "bench",
            "jRaftServerId": f"127.0.0.1:{raft[node]}",
            "jRaftInitConf": ",".join(f"127.0.0.1:{port}" for port in raft),
            "jRaftControllerRPCAddr": ",".join(f"127.0.0.1:{port}" for port in remoting),
        }
    return java_load.properties({**own, **common})


if __name__ == "__main__":
    sys.exit(main())
