"""The one place that starts Spark, and what must be true of a machine before it can.

Spark's own message when Java is missing is a shell's; its default log level tells users about
native libraries. Here, what is missing is one sentence that says what to install, and Spark only
speaks when it fails. Everything runs in this process and its children (``local[*]``) unless a
master is given, and nothing listens outside of loopback then. With ``k8s://`` this process is the
driver in its pod, and executors are pods of their own (:mod:`gantry_pipeline.kubernetes`).
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import EXIT_TEMPORARY, ConfigError, GantryError

from gantry_pipeline import kubernetes, nameless
from gantry_pipeline.kubernetes import Executors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

JAVA_MIN = 17  # Spark 4 is compiled for it
JAVA_ANSWER_S = 30
HEAP_MIN_MIB, HEAP_MAX_MIB = 1024, 8192
MEMORY_LIMITS = (  # of this process's control group, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
LOCAL = "local[*]"
# For jobs whose bytes are Python's: the JVM runs each line a few times, and to optimise it would
# take longer than the job (23 s of processor time for a small audit, 11 with these).
LIGHT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Where(msgspec.Struct, frozen=True):
    """The place where a job runs.

    Attributes:
        master: ``local[*]``, ``local[2]``, ``k8s://…``.
        driver_memory_mib: heap of the JVM here; None takes a quarter of the memory.
        executors: for ``k8s://``; None takes two.
    """

    master: str = LOCAL
    driver_memory_mib: int | None = None
    executors: Executors | None = None


class NoSparkError(GantryError):
    """Spark cannot start on this machine; the sentence says what to install."""


class SparkFailedError(GantryError):
    """Spark started and ended with an error of its own."""

    exit_code = EXIT_TEMPORARY


class TierRefusedError(GantryError):
    """Something in the tier is missing, damaged, foreign or newer; the sentence names it."""

    exit_code = 1  # as an audit that found something


def java() -> tuple[str, int]:
    """Java's program and its version.

    Raises:
        NoSparkError: there is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install Java {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless)"
    if program is None:
        raise NoSparkError(f"Spark needs Java, and there is none: {advice}.")
    try:
        said = subprocess.run(  # noqa: S603 - the program that Spark itself will start
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        where = "JAVA_HOME leads to" if home else "The PATH leads to"
        raise NoSparkError(f"{where} {program}, which does not run: {advice}.") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    version = int(found.group(1)) if found else 0
    if version < JAVA_MIN:
        raise NoSparkError(f"{program} is Java {version or 'of unknown version'}: {advice}.")
    return program, version


def pyspark_version() -> str:
    """The version of PySpark.

    Raises:
        NoSparkError: it is not installed.
    """
    try:
        import pyspark
    except ImportError as error:
        raise NoSparkError("PySpark is not installed: pip install 'gantry[pipeline]'.") from error
    return str(pyspark.__version__)


def memory_mib() -> int:
    """The memory of this process: the machine's, or its control group's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(total, *map(_limit, MEMORY_LIMITS))) >> 20


def _limit(file: Path) -> float:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such control groups, or "max"
        return math.inf


def heap_mib(memory: int) -> int:
    """A quarter of the memory, within bounds: Python workers need as much again."""
    return min(max(memory // 4, HEAP_MIN_MIB), HEAP_MAX_MIB)


def start(
    name: str,
    *,
    master: str = LOCAL,
    driver_memory_mib: int | None = None,
    log: Path | None = None,
    java_options: str = "",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """A session for one job, with the ``tier`` source registered. Stop it when the job ends.

    Args:
        name: what Spark calls the application.
        master: ``local[*]``, ``local[2]``, ``k8s://…``.
        driver_memory_mib: heap of the JVM; None takes a quarter of the memory.
        log: where the JVM and the workers write what they have to say; None is our stderr.
        java_options: further ones for the JVM.
        settings: Spark's own, which win over those set here.

    Raises:
        NoSparkError: Java or PySpark is missing.
    """
    java()
    pyspark_version()
    from pyspark.sql import SparkSession

    from gantry_pipeline.source.tier import TierSource

    # Workers are this Python, with this code; a PATH may lead to another.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    heap = driver_memory_mib or heap_mib(memory_mib())
    wanted = {
        "spark.driver.memory": f"{heap}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log4j()} {java_options}",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        wanted |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    builder = SparkSession.builder.master(master).appName(f"gantry-{name}")
    for key, value in (wanted | (settings or {})).items():
        builder = builder.config(key, value)
    with _stderr_into(log):
        session = builder.getOrCreate()
    session.dataSource.register(TierSource)
    return session


@contextmanager
def running(
    name: str,
    where: Where = Where(),  # noqa: B008 - immutable
    *,
    java_options: str = "",
) -> Iterator[SparkSession]:
    """A session for as long as the block lasts; what goes wrong in it is one sentence.

    Spark's own log is kept only if Spark failed for a reason of its own; the sentence says where.

    Raises:
        NoSparkError: Java or PySpark is missing.
        NamelessUserError: the user has no name, and there is nothing to give it one.
        ConfigError: executors were asked for where there can be none.
        TierRefusedError: a task or a stream met something in the tier that it must not go on with.
        SparkFailedError: anything else that Spark reports.
    """
    java()
    pyspark_version()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    log = Path(tempfile.mkdtemp(prefix="gantry-spark-"), "spark.log")
    keep = False
    try:
        with nameless.named(log.parent):
            session = start(
                name,
                master=where.master,
                driver_memory_mib=where.driver_memory_mib,
                log=log,
                java_options=java_options,
                settings=_executors(where, log.parent),
            )
            try:
                yield session
            finally:
                session.stop()
    except (PySparkException, Py4JError) as error:
        sentence = told(str(error), log)
        keep = str(log) in str(sentence)
        raise sentence from error
    finally:
        if not keep:
            shutil.rmtree(log.parent, ignore_errors=True)


def _executors(where: Where, folder: Path) -> dict[str, str]:
    """Spark's settings for executors as pods; none for a job that runs here."""
    if not where.master.startswith(kubernetes.MASTER):
        if where.executors is not None:
            raise ConfigError(
                f"Executors are pods, and {where.master} has none: use --master "
                f"{kubernetes.MASTER}https://kubernetes.default.svc, or leave --executors out."
            )
        return {}
    wanted = where.executors or Executors()
    template = folder / "executor.json"
    template.write_text(kubernetes.pod_template(wanted), encoding="ascii")
    quiet = {"spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={_log4j()}"}
    return kubernetes.settings(wanted, os.environ, template) | quiet


def told(text: str, log: Path) -> GantryError:
    """A sentence of ours among Spark's many lines, if there is one."""
    ours = re.findall(r"^(?:\w+\.)*gantry_\w+(?:\.\w+)*\.(\w+): (.+?)\s*$", text, re.MULTILINE)
    if ours:
        kind, sentence = ours[-1]
        if kind in ("StoreError", "ConfigError"):
            return GantryError(sentence) if kind == "ConfigError" else SparkFailedError(sentence)
        return TierRefusedError(sentence)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return SparkFailedError(f"Spark failed ({first[:300]}); its log is {log}.")


@contextmanager
def _stderr_into(log: Path | None) -> Iterator[None]:
    """Children that are started here get the file as their stderr; this process keeps its own.

    Before it reads any setting, the JVM greets with a warning about a module that Spark asks for.
    """
    if log is None:
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _log4j() -> Path:
    return Path(__file__).with_name("log4j2.properties")
