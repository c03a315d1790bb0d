"""Needs of the jobs on this machine, checked without starting Spark.

Every check ends: with what was found, and if that is not enough with one sentence that says what to
do. Nothing here needs the packages it looks for.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import msgspec

from gantry_pipeline import session
from gantry_pipeline.session import NoSparkError

PYTHON_MIN = (3, 11)
MEMORY_MIN_MIB = 2048  # a heap of 1 GiB, the JVM around it, and two workers of 0.3 GiB
PACKAGES = ("pyspark", "pyarrow", "numpy", "obstore")


class Check(msgspec.Struct, frozen=True):
    """One line.

    Attributes:
        name: of what was looked for.
        found: what is there.
        ok: whether that is enough.
        advice: one sentence; empty if there is nothing to do.
    """

    name: str
    found: str
    ok: bool
    advice: str = ""


def checks() -> list[Check]:
    """All of them, in the order in which they matter."""
    return [_java(), _python(), *map(_package, PACKAGES), _memory()]


def _java() -> Check:
    try:
        program, version = session.java()
    except NoSparkError as error:
        return Check("Java", "none that can be used", ok=False, advice=str(error))
    return Check("Java", f"{version} ({program})", ok=True)


def _python() -> Check:
    ok = sys.version_info >= PYTHON_MIN
    least = ".".join(map(str, PYTHON_MIN))
    advice = "" if ok else f"Spark's workers need Python {least}: run gantry with a newer one."
    return Check("Python", f"{platform.python_version()} ({sys.executable})", ok, advice)


def _package(name: str) -> Check:
    try:
        return Check(name, metadata.version(name), ok=True)
    except metadata.PackageNotFoundError:
        advice = f"{name} is not installed: pip install 'gantry[pipeline]'."
        return Check(name, "not installed", ok=False, advice=advice)


def _memory() -> Check:
    mib = session.memory_mib()
    ok = mib >= MEMORY_MIN_MIB
    found = f"{mib} MiB, of which {session.heap_mib(mib)} MiB for Spark's heap"
    advice = f"Spark needs {MEMORY_MIN_MIB} MiB: give this machine or container more."
    return Check("memory", found, ok, "" if ok else advice)
