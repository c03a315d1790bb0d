"""kopf as the operator embeds it, without an API server."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from pathlib import Path
from typing import Any

import kopf
import pytest
from gantry_operator.api.credentials import Credentials
from gantry_operator.shell import WatchEndedError, run_watches
from gantry_protocol.process import runtime
from unit.operator.test_api import kubeconfig

TURNS = 100  # of the loop, in which a signal is surely met


def test_a_second_signal_ends_an_operator_that_does_not_come_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    async def main(stop: asyncio.Event) -> None:
        begun, spawn_tasks = asyncio.Event(), kopf.spawn_tasks

        async def spawned(**named: Any) -> Any:
            tasks = await spawn_tasks(**named)
            asyncio.get_running_loop().call_soon(begun.set)
            return tasks

        monkeypatch.setattr(kopf, "spawn_tasks", spawned)
        credentials = Credentials(kubeconfig(tmp_path / "config", "http://127.0.0.1:9"))
        await credentials.load()
        watching = asyncio.create_task(run_watches(credentials, [], _deaf, _deaf))
        await begun.wait()
        try:
            await _told_to_end()
            assert stop.is_set()
            await _told_to_end()
        except asyncio.CancelledError:
            ended.append(True)
            raise
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    stderr = io.StringIO()
    assert (runtime.run(main, stderr=stderr), stderr.getvalue()) == (0, "")
    assert ended


async def test_nothing_is_remembered_of_an_object_between_two_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    async def spawned(**named: Any) -> Any:
        given.update(named)
        return [asyncio.create_task(asyncio.sleep(0))]

    monkeypatch.setattr(kopf, "spawn_tasks", spawned)
    credentials = Credentials(kubeconfig(tmp_path / "config", "http://127.0.0.1:9"))
    await credentials.load()
    with pytest.raises(WatchEndedError):
        await run_watches(credentials, [], _deaf, _deaf)
    memories, body = given["memories"], {"metadata": {"uid": "u"}}
    first = await memories.recall(body, memobase=kopf.Memo(), noticed_by_listing=True)
    assert await memories.recall(body) is not first
    await memories.forget(body)
    assert list(memories.iter_all_memories()) == []


async def _told_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _deaf(*_: object) -> None:
    """Nothing is heard."""
