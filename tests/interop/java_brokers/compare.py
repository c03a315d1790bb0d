"""The Java brokers of RocketMQ under the load of `gantry_lab bench broker`.

Fetches them with Maven once, starts a name server (which is the controller, too) and brokers on
loopback, and puts the same load on them that ours get:

    PYTHONPATH=tests .venv/bin/python tests/interop/java_brokers/compare.py

Lines carry the benchmark's name. `java-default`: upstream's defaults, which acknowledge a message
once the master has it in memory and sync it later; one broker, and for `send-64-3r` three.
`java-all-in-sync`: three brokers with `allAckInSyncStateSet`, which is what Gantry always does,
except that nothing is synced before it is acknowledged here, either. Both are 5.3.3; `java-5.5.0`
is a broker of that version with its defaults, for consumption by POP. Needs Java 17 or later and
Maven. Every process that it starts ends with it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_lab.bench.ports import free_ports
from support import java_load

if TYPE_CHECKING:
    from collections.abc import Iterator

POM = Path(__file__).parent / "pom.xml"
KINDS = {
    "default": ("send-64-1r", "batch32-1r", "pull-hot", "send-64-3r"),
    "all-in-sync": ("send-64-3r",),
    "5.5.0": ("pop-64", "pop-timers"),
}
VERSIONS = {"5.5.0": "5.5.0"}  # of kinds that are not of the version in POM
NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER = "org.apache.rocketmq.broker.BrokerStartup"
NAME_SERVER_HEAP, BROKER_HEAP = "256m", "1g"
START_S = 60.0
JOIN_S = 30.0  # until three brokers are in sync: they look at each other every few seconds
CASE_S = 300.0  # then it is ended, and said so
REPLICAS = {"send-64-3r": 3}  # one in all other cases


def main() -> int:
    """Measure; 1 if a case had no figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--case", action="append", help="by default all that the kind has")
    parser.add_argument("--runs", default="3")
    parser.add_argument("--seconds", default="5")
    given = parser.parse_args()
    if java_load.missing():
        print(f"{java_load.missing()} not installed", file=sys.stderr)
        return 2
    failed = False
    for kind in given.kind or KINDS:
        jars = classpath(kind)
        for case in given.case or KINDS[kind]:
            with group(kind, REPLICAS.get(case, 1), jars) as address:
                wanted = ["--against", address, "--runs", given.runs, "--seconds", given.seconds]
                failed |= not java_load.measured("broker", f"java-{kind}", case, wanted, CASE_S)
    return int(failed)


def classpath(kind: str) -> str:
    """The jars of a kind's version."""
    version = VERSIONS.get(kind)
    name = "java-brokers" if version is None else f"java-brokers-{version}"
    return java_load.classpath(POM, f"{name}.classpath", version)


@contextmanager
def group(kind: str, replicas: int, jars: str) -> Iterator[str]:
    """A name server and fresh brokers; the address of the name server once they are in sync."""
    names, controller = free_ports(2)
    ports = [broker_port() for _ in range(replicas)]
    home = Path(tempfile.mkdtemp(prefix="gantry-java-"))
    running = []
    try:
        config = home / "namesrv.properties"
        config.write_text(name_server(names, controller, home, replicas), "utf-8")
        running.append(
            java_load.started(
                home, "namesrv", jars, NAME_SERVER, ["-c", str(config)], NAME_SERVER_HEAP
            )
        )
        java_load.served([names, *([controller] if replicas > 1 else [])], START_S)
        for number, port in enumerate(ports):
            config = home / f"broker-{number}.properties"
            config.write_text(
                broker(kind, port, names, controller, home / f"store-{number}", replicas), "utf-8"
            )
            arguments = ["-c", str(config)]
            name = f"broker-{number}"
            running.append(java_load.started(home, name, jars, BROKER, arguments, BROKER_HEAP))
        java_load.served(ports, START_S)
        if replicas > 1:
            time.sleep(JOIN_S)
        yield f"127.0.0.1:{names}"
    finally:
        java_load.ended(running, home)


def name_server(port: int, controller: int, home: Path, replicas: int) -> str:
    """With a controller inside where there is more than one replica."""
    values: dict[str, object] = {
        "listenPort": port,
        "kvConfigPath": home / "kv.json",
        "configStorePath": home / "namesrv-saved.properties",
    }
    if replicas > 1:
        values |= {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "bench",
            "controllerDLegerPeers": f"n0-127.0.0.1:{controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "controller",
        }
    return java_load.properties(values)


def broker(kind: str, port: int, names: int, controller: int, store: Path, replicas: int) -> str:
    """What has to be set for a broker on loopback, and what the kind is about."""
    values: dict[str, object] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "bench",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": f"127.0.0.1:{names}",
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
    }
    if replicas == 1:
        values["brokerId"] = 0
    else:
        values |= {
            "brokerId": -1,
            "enableControllerMode": "true",
            "controllerAddr": f"127.0.0.1:{controller}",
        }
    if kind == "all-in-sync":
        values["allAckInSyncStateSet"] = "true"
    return java_load.properties(values)


def broker_port() -> int:
    """A port for a broker, which also takes the one two below it, and the one above."""
    while True:
        found = free_ports(4)
        if found == list(range(found[0], found[0] + 4)):
            return found[2]


if __name__ == "__main__":
    sys.exit(main())
