"""RocketMQ's Java servers under the load of `gantry_lab bench`: fetched, started, measured, ended.

For scripts beside the tests, not for tests: each prints the lines of `bench … --json` under
a name of its own. Every process that they start ends with them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support.java import MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
WARMUP_S = "5"  # the JVM compiles what is hot

# Serialisation and mapped files reflect into the JDK: without these a controller dies at its start
# or first snapshot (apache/rocketmq 10170, 10612), and a broker at its first file.
OPENS = (
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util.concurrent.atomic=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED"),
    *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED"),
)


def missing() -> str:
    """The tools that are not installed, for a sentence; empty if all are."""
    return " and ".join(MISSING)


def classpath(pom: Path, name: str, version: str | None = None) -> str:
    """The jars, fetched by Maven; where they are is remembered under build/ as `name`.

    ``version``: of RocketMQ, instead of the one that `pom` names.
    """
    found = ROOT / "build" / name
    if not found.exists() or found.stat().st_mtime < pom.stat().st_mtime:
        found.parent.mkdir(exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={found}"]
        if version is not None:
            goal.append(f"-Drocketmq.version={version}")
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True, stdout=sys.stderr)
    return found.read_text("utf-8").strip()


def properties(values: Mapping[str, object]) -> str:
    """A Java properties file."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def started(
    home: Path, name: str, jars: str, main: str, arguments: Sequence[str], heap: str
) -> subprocess.Popen[bytes]:
    """One Java process; its log and its notion of a home directory are its own."""
    own = home / f"home-{name}"
    own.mkdir()
    flags = [f"-Xms{heap}", f"-Xmx{heap}", f"-Duser.home={own}", f"-Drocketmq.home.dir={own}"]
    with (home / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            ["java", *flags, *OPENS, "-cp", jars, main, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def ended(running: Sequence[subprocess.Popen[bytes]], home: Path) -> None:
    """Kill them all, and forget what they wrote."""
    for process in running:
        process.kill()
    for process in running:
        process.wait()
    shutil.rmtree(home, ignore_errors=True)


def served(ports: Sequence[int], within_s: float) -> None:
    """Until every port takes connections; the load itself waits for a leader or a route."""
    until = time.monotonic() + within_s
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise SystemExit(f"Nobody serves port {port}.") from None
                time.sleep(0.1)


def measured(bench: str, label: str, case: str, arguments: Sequence[str], within_s: float) -> bool:
    """Put the load on; the lines go to our own stdout."""
    command = [sys.executable, "-m", "gantry_lab", "bench", bench, "--json"]
    command += ["--label", label, "--case", case, "--warmup", WARMUP_S, *arguments]
    try:
        done = subprocess.run(command, timeout=within_s, env=dict(os.environ), check=False)
    except subprocess.TimeoutExpired:
        print(f"{label} {case}: no figure within {within_s:.0f} s", file=sys.stderr)
        return False
    return done.returncode == 0
