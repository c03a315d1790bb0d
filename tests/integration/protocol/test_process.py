"""Real processes: signals, exit codes, and the data directory between two of them."""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path

from support.patience import PATIENCE_S

PROLOGUE = """
import asyncio, sys
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.process.runtime import run
from gantry_protocol.remoting.server import RemotingServer
"""


async def _start(tmp_path: Path, main: str) -> asyncio.subprocess.Process:
    script = tmp_path / f"main-{len(list(tmp_path.iterdir()))}.py"
    body = textwrap.indent(textwrap.dedent(main), "    ")
    script.write_text(
        f"{PROLOGUE}\nasync def main(stop):\n{body}\n\nsys.exit(run(main))\n", "utf-8"
    )
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


async def _said(process: asyncio.subprocess.Process, words: str) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        line = (await process.stdout.readline()).decode()
    assert words in line
    return line


async def _end(process: asyncio.subprocess.Process) -> tuple[int, str]:
    async with asyncio.timeout(PATIENCE_S):
        _, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, stderr.decode()


HOLD = """
data = await DataDir.open_async({path!r}, "broker", {{"podUid": "1"}}, wait_s={wait_s})
print("open", data.created)
await stop.wait()
"""


async def test_a_second_process_waits_for_the_first_and_takes_over(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    first = await _start(tmp_path, HOLD.format(path=path, wait_s=0))
    await _said(first, "open True")
    second = await _start(tmp_path, HOLD.format(path=path, wait_s=30))
    assert second.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        assert "waiting up to 30 s" in (await second.stderr.readline()).decode()
    first.kill()
    await first.wait()
    await _said(second, "open False")
    second.send_signal(signal.SIGTERM)
    assert await _end(second) == (0, "")
    await _end(first)


async def test_a_second_process_that_may_not_wait_gives_up_with_a_sentence(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    first = await _start(tmp_path, HOLD.format(path=path, wait_s=0))
    await _said(first, "open True")
    second = await _start(tmp_path, HOLD.format(path=path, wait_s=0))
    code, stderr = await _end(second)
    assert code == 75
    assert stderr.count("\n") == 1
    assert f"Another process still uses the data directory {path}" in stderr
    first.send_signal(signal.SIGINT)
    assert await _end(first) == (0, "")


async def test_a_port_in_use_ends_with_75_and_one_sentence(tmp_path: Path) -> None:
    first = await _start(
        tmp_path,
        """
        print(await RemotingServer(lambda c, r: None).start("127.0.0.1", 0))
        await stop.wait()
        """,
    )
    port = int(await _said(first, ""))
    second = await _start(
        tmp_path, f'await RemotingServer(lambda c, r: None).start("127.0.0.1", {port})'
    )
    code, stderr = await _end(second)
    assert code == 75
    assert stderr.startswith(f"gantry: Port {port} on 127.0.0.1 is in use")
    assert stderr.count("\n") == 1
    first.send_signal(signal.SIGTERM)
    assert await _end(first) == (0, "")


async def test_a_fault_of_ours_ends_with_70_and_a_traceback(tmp_path: Path) -> None:
    process = await _start(tmp_path, "raise ZeroDivisionError('by design')")
    code, stderr = await _end(process)
    assert code == 70
    assert "Traceback" in stderr
    assert "ZeroDivisionError: by design" in stderr
