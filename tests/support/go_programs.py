"""Programs of others in Go: built through Go's modules, outside the sources.

A program is a folder of ``tests/interop`` with a ``go.mod``, and sources where it has some of its
own. What is built lies in ``build/interop``; Go knows what is built already.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTEROP = ROOT / "tests/interop"
BUILT = ROOT / "build/interop"
MISSING = "" if shutil.which("go") else "go is not installed"


@cache
def built(folder: str, package: str = ".", *flags: str) -> str:
    """The path of a program.

    Args:
        folder: below ``tests/interop``.
        package: the program's, in Go's words; that of the folder by default.
        flags: further ones of ``go build``.
    """
    source = BUILT / folder / "source"
    shutil.copytree(INTEROP / folder, source, dirs_exist_ok=True)
    program = BUILT / folder / (folder if package == "." else _name(package))
    build = ["nice", "-n", "10", "go", "build", "-mod=mod", *flags, "-o", str(program), package]
    subprocess.run(build, cwd=source, check=True)
    return str(program)


def _name(package: str) -> str:
    """As Go names the program of a package: its folder, before the number of a major version."""
    *_, before, last = package.split("/")
    return before if last.startswith("v") and last[1:].isdigit() else last
