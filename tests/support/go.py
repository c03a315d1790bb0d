"""Programs of RocketMQ's Go client: built once per change, outside the sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests/interop/go"
MISSING = [tool for tool in ("go",) if shutil.which(tool) is None]


def producer() -> Path:
    """The program of ``interop/go``; Go itself fetches the client and knows what is built."""
    built = ROOT / "build/interop/go/producer"
    built.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=SOURCES, check=True)
    return built
