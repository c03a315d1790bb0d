"""`gantry drain`: what it asks of the leader, and how it says what is left."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from gantry_cli.commands import drain as command
from gantry_cli.main import cli
from gantry_protocol.admin import DrainView, GroupView, MemberView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

LEFT = DrainView(done=False, unread=40, parked=2, transactions=1, waits_for="40 messages wait")
DONE = DrainView(done=True, unread=0, parked=0, transactions=0)


class Leader:
    """The admin API of a leader with one group, whose master says these things in turn."""

    def __init__(self, *reports: DrainView | None, refusal: str = "") -> None:
        self.changes: list[tuple[str, str, Any]] = []
        self.port = 0
        self._reports = list(reports)
        self._refusal = refusal
        self._began: int | None = None
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def serving(self) -> Iterator[Leader]:
        runner = self._loop.run_until_complete(self._start())
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/v1/groups", self._groups)
        app.router.add_route("*", "/v1/groups/{cluster}/{name}/drain", self._change)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _groups(self, _: web.Request) -> web.Response:
        said = None
        if self._began is not None and self._reports:
            said = self._reports.pop(0)
        master = MemberView(broker_id=1, address="h:1", alive=True, in_sync=True, drain=said)
        view = GroupView(
            cluster="gantry",
            name="orders",
            uid="u",
            master_broker_id=1,
            master_epoch=1,
            sync_state_set=[1],
            sync_state_set_epoch=1,
            members=[master],
            drain_began_ms=self._began,
        )
        return web.json_response({"index": 1, "groups": [json.loads(view.to_json())]})

    async def _change(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.changes.append((request.method, request.path, body))
        if self._refusal:
            error = {"error": "INVALID_REQUEST", "message": self._refusal}
            return web.json_response(error, status=409)
        self._began = 5 if request.method == "PUT" else None
        return web.json_response({})


def run(leader: Leader, tmp_path: Path, *words: str) -> Result:
    token = tmp_path / "token"
    token.write_text("secret")
    where = ["--controllers", f"127.0.0.1:{leader.port}", "--admin-token-file", str(token)]
    return CliRunner().invoke(cli, ["drain", *words, *where])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOOK_S", 0.0)


def test_it_says_what_is_left_until_nothing_is(tmp_path: Path) -> None:
    with Leader(None, LEFT, LEFT, DONE).serving() as leader:
        result = run(leader, tmp_path, "orders")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "Group orders is being drained: new messages go to other groups.",
        "Its master has not said yet what is left.",
        "40 unread, 2 delayed, 1 open transactions: 40 messages wait.",
        "Nothing is left in group orders.",
    ]
    assert leader.changes == [("PUT", "/v1/groups/gantry/orders/drain", {"uid": "u"})]


def test_it_ends_a_drain_and_need_not_wait(tmp_path: Path) -> None:
    with Leader(LEFT).serving() as leader:
        assert run(leader, tmp_path, "orders", "--no-wait").exit_code == 0
        result = run(leader, tmp_path, "orders", "--end")
    assert result.output == "Group orders takes messages.\n"
    assert [change[0] for change in leader.changes] == ["PUT", "DELETE"]


def test_a_refusal_is_told(tmp_path: Path) -> None:
    with Leader(refusal="orders is the last group").serving() as leader:
        result = run(leader, tmp_path, "orders")
        assert result.exit_code == 1
        assert "orders is the last group" in str(result.exception)
        missing = run(leader, tmp_path, "nobody")
        assert "know no group nobody" in str(missing.exception)
