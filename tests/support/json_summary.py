"""Commands of `gantry` that print their summary as JSON, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any


async def gantry(*args: str) -> tuple[int, Any]:
    """The exit code of a command, and its summary."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gantry_cli", *args, "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "GANTRY_NAMESERVERS": ""},
    )
    out, _ = await process.communicate()
    lines = out.splitlines()
    return process.returncode or 0, json.loads(lines[-1]) if lines else None
