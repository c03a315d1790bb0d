"""RocketMQ's own programs: their jars, fetched by Maven, and how a JVM of a few seconds is run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

INTEROP = Path(__file__).resolve().parents[1] / "interop"
BROKERS = INTEROP / "java_brokers"
MISSING = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
# Little compiling and simple collecting is the least work for a process that lives for seconds.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def brokers() -> str:
    """Class path of upstream's brokers and tools."""
    return classpath(BROKERS, BROKERS / "target")


def clients(version: str = "5.3.3") -> str:
    """Class path of the programs in ``interop/java``, compiled against a version of the client."""
    project = INTEROP / "java"
    target = project / "target" / version
    jars = classpath(project, target, f"-Drocketmq.version={version}", "compile")
    return f"{target / 'classes'}:{jars}"


def proxy() -> str:
    """Class path of upstream's proxy."""
    project = INTEROP / "java_proxy"
    return classpath(project, project / "target")


def grpc_clients() -> str:
    """Class path of the program in ``interop/java_grpc``."""
    project = INTEROP / "java_grpc"
    target = project / "target"
    return f"{target / 'classes'}:{classpath(project, target, 'compile')}"


def classpath(project: Path, target: Path, *goals: str) -> str:
    """What a project needs at run time, as `java -cp` takes it; after `goals`, once per change."""
    kept = target / "classpath"
    with _alone():
        if not _is_current(kept, project):
            target.mkdir(parents=True, exist_ok=True)
            goal = ("dependency:build-classpath", f"-Dmdep.outputFile={kept}")
            pom = project / "pom.xml"
            command = ["mvn", "-q", "-B", "-f", str(pom), *goals, *goal]
            subprocess.run(command, check=True, stdout=sys.stderr)  # figures go to stdout
    return kept.read_text().strip()


def _is_current(kept: Path, project: Path) -> bool:
    """Whether Maven would answer the same: no source is newer, and no jar has gone."""
    if not kept.exists():
        return False
    made_at = kept.stat().st_mtime
    sources = [project / "pom.xml", *(project / "src").rglob("*.java")]
    jars = kept.read_text().strip().split(os.pathsep)
    return all(one.stat().st_mtime < made_at for one in sources) and all(map(os.path.exists, jars))


@contextmanager
def _alone() -> Iterator[None]:
    """One Maven at a time: two that fetch the same jar may read each other's half."""
    folder = os.open(INTEROP, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class Admin:
    """RocketMQ's mqadmin 5.3.3 as one process for many commands; see ``Admin.java``.

    Args:
        home: where it may write.
        name_servers: as its option ``-n`` takes them.
    """

    def __init__(self, home: Path, name_servers: str) -> None:
        self._names = name_servers
        home.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [
                *("java", "-cp", brokers(), f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
                *("-Xmx256m", *SHORT_LIVED, str(BROKERS / "Admin.java")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(self, command: str, *args: str) -> str:
        """What it prints, without the noise of its logger."""
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        commands.write("\t".join([command, "-n", self._names, *args]).encode() + b"\n")
        commands.flush()
        length = answers.readline()
        assert length, f"mqadmin has ended at {command}"
        printed = answers.read(int(length)).decode(errors="replace")
        return "\n".join(line for line in printed.splitlines() if "|-" not in line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()
