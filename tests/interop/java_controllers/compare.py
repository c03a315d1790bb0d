"""The Java controllers of RocketMQ 5.3.3 under the load of `gantry bench controller`.

Fetches them with Maven once, starts three on loopback with their own defaults, puts the same load
on them that ours get, and does so for DLedger and for JRaft:

    .venv/bin/python tests/interop/java_controllers/compare.py > build/bench/java.jsonl

Lines carry the benchmark's name `java-dledger` or `java-jraft`. What a Java controller cannot do
within the time is told on stderr, by the case's own sentence; the other cases go on. Needs Java 17
or later and Maven. Every process that it starts ends with it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

POM = Path(__file__).parent / "pom.xml"
ROOT = POM.parents[3]
CLASSPATH = ROOT / "build" / "java-controllers.classpath"
CASES = ("write-64x1", "write-64x16", "readindex-64x16", "groups-capacity", "mass-failover")
MAIN = "org.apache.rocketmq.controller.ControllerStartup"
HEAP = "512m"
WARMUP_S = "5"  # the JVM compiles what is hot
START_S = 60.0
CASE_S = 240.0  # then it is ended, and said so

# Serialisation reflects into the JDK: without these a controller dies at its start or first
# snapshot (apache/rocketmq 10170, 10612).
OPENS = [
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util.concurrent.atomic=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED"),
    *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
]


def main() -> int:
    """Measure; 1 if a case had no figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=["dledger", "jraft"])
    parser.add_argument("--case", action="append", help=f"by default {', '.join(CASES)}")
    parser.add_argument("--runs", default="3", help="of each case; mass-failover has one")
    parser.add_argument("--seconds", default="2")
    given = parser.parse_args()
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        print(f"{' and '.join(missing)} not installed", file=sys.stderr)
        return 2
    jars = classpath()
    failed = False
    for kind in given.kind or ["dledger", "jraft"]:
        for case in given.case or CASES:
            with quorum(kind, jars) as address:
                failed |= not measured(kind, case, address, given.runs, given.seconds)
    return int(failed)


def classpath() -> str:
    """The jars, fetched by Maven; where they are is remembered under build/."""
    if not CLASSPATH.exists() or CLASSPATH.stat().st_mtime < POM.stat().st_mtime:
        CLASSPATH.parent.mkdir(exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={CLASSPATH}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(POM), *goal], check=True, stdout=sys.stderr)
    return CLASSPATH.read_text("utf-8").strip()


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
            running.append(started(node, config, jars, home))
        served(ports[:3])
        yield f"127.0.0.1:{ports[0]}"
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


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
    return "".join(f"{key}={value}\n" for key, value in {**own, **common}.items())


def started(node: int, config: Path, jars: str, home: Path) -> subprocess.Popen[bytes]:
    """One controller; its log and its notion of a home directory are its own."""
    own = home / f"home-{node}"
    own.mkdir()
    flags = [f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-Duser.home={own}", f"-Drocketmq.home.dir={own}"]
    with (home / f"{node}.log").open("wb") as log:
        return subprocess.Popen(
            ["java", *flags, *OPENS, "-cp", jars, MAIN, "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def served(ports: list[int]) -> None:
    """Until every port takes connections; the load itself waits for a leader."""
    until = time.monotonic() + START_S
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise SystemExit(f"No controller serves port {port}.") from None
                time.sleep(0.1)


def measured(kind: str, case: str, address: str, runs: str, seconds: str) -> bool:
    """Put the load on; the lines go to our own stdout."""
    command = [sys.executable, "-m", "gantry_cli", "bench", "controller", "--json"]
    command += ["--against", address, "--label", f"java-{kind}", "--case", case]
    runs = "1" if case == "mass-failover" else runs  # its groups take longest to make
    command += ["--runs", runs, "--seconds", seconds, "--warmup", WARMUP_S]
    try:
        done = subprocess.run(command, timeout=CASE_S, env=dict(os.environ), check=False)
    except subprocess.TimeoutExpired:
        print(f"java-{kind} {case}: no figure within {CASE_S:.0f} s", file=sys.stderr)
        return False
    return done.returncode == 0


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    sys.exit(main())
