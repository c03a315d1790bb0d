"""RocketMQ's own programs: their jars, fetched by Maven, and how a JVM of a few seconds is run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INTEROP = Path(__file__).resolve().parents[1] / "interop"
MISSING = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
# Little compiling and simple collecting is the least work for a process that lives for seconds.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def classpath(pom: Path, directory: Path, *goals: str) -> str:
    """What a project needs at run time, as `java -cp` takes it.

    Args:
        pom: of the project.
        directory: where Maven may write the answer.
        goals: done before, for example `compile`.
    """
    target = directory / "classpath"
    goal = ("dependency:build-classpath", f"-Dmdep.outputFile={target}")
    with _alone():
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goals, *goal], check=True)
    return target.read_text().strip()


def clients(directory: Path, version: str = "5.3.3") -> str:
    """Class path of the programs in ``interop/java``, compiled against a version of the client."""
    project = INTEROP / "java"
    define = f"-Drocketmq.version={version}"
    jars = classpath(project / "pom.xml", directory, define, "compile")
    return f"{project / 'target' / version / 'classes'}:{jars}"


@contextmanager
def _alone() -> Iterator[None]:
    """One Maven at a time: two that fetch the same jar may read each other's half."""
    folder = os.open(INTEROP, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
