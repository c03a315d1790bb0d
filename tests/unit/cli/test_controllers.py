"""`gantry controllers`: what is asked of the leader, and how what it says is shown."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from gantry_cli.main import cli
from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Leader:
    """The admin API of a member that says that it leads, on a loop of its own."""

    def __init__(self, lease: dict[str, bool] | None, role: str = "leader") -> None:
        self.lease = lease
        self.role = role
        self.peers: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.port = 0
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
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path, body))
        view = {
            "clusterUid": "u",
            "nodeId": 1,
            "name": "c-0",
            "term": 3,
            "role": self.role,
            "leaderId": 1 if self.role == "leader" else None,
            "commitIndex": 9,
            "appliedIndex": 9,
            "peers": self.peers,
            "lease": self.lease,
        }
        return web.json_response(view)


def said(leader: Leader, tmp_path: Path, *words: str) -> str:
    """What `gantry controllers WORDS` prints."""
    token = tmp_path / "token"
    token.write_text("secret")
    where = ["--controllers", f"127.0.0.1:{leader.port}", "--admin-token-file", str(token)]
    result = CliRunner().invoke(cli, ["controllers", *words, *where])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("role", "words"),
    [
        pytest.param("leader", ["leader", "voter", "voter, filling", "voter, silent"], id="led"),
        pytest.param("follower", ["voter", "voter", "voter, filling", "voter"], id="no leader"),
    ],
)
def test_the_list_tells_who_counts_and_of_whom_that_is_not_known(
    tmp_path: Path, role: str, words: list[str]
) -> None:
    with Leader(None, role).serving() as leader:
        leader.peers = [
            {"id": number, "name": f"c-{number}", "address": "a", "counted": counted}
            for number, counted in enumerate((True, True, False, None), start=1)
        ]
        rows = said(leader, tmp_path, "list").splitlines()[1:]
    assert [" ".join(row.split()[2:-4]) for row in rows] == words


@pytest.mark.parametrize(
    ("held", "role", "words"),
    [
        pytest.param(None, "leader", "are off", id="a controller that knows none"),
        pytest.param({"enabled": False, "valid": False}, "leader", "are off", id="off"),
        pytest.param({"enabled": True, "valid": True}, "leader", "c-0 holds a lease", id="held"),
        pytest.param({"enabled": True, "valid": False}, "leader", "c-0 holds none", id="not held"),
        pytest.param({"enabled": True, "valid": False}, "follower", "nobody leads", id="no leader"),
    ],
)
def test_lease_is_shown_and_not_touched(
    tmp_path: Path, held: dict[str, bool] | None, role: str, words: str
) -> None:
    with Leader(held, role).serving() as leader:
        assert words in said(leader, tmp_path, "lease")
    assert leader.asked == [("GET", "/v1/quorum", None)]


@pytest.mark.parametrize(("word", "enabled"), [("on", True), ("off", False)])
def test_lease_is_set_as_it_was_said(tmp_path: Path, word: str, enabled: bool) -> None:
    with Leader({"enabled": enabled, "valid": False}).serving() as leader:
        shown = json.loads(said(leader, tmp_path, "lease", word, "--json"))
    assert leader.asked == [("PUT", "/v1/quorum/lease", {"enabled": enabled})]
    assert shown["lease"] == {"enabled": enabled, "valid": False}


def test_silence_names_who_was_asked(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    where = ["--controllers", "127.0.0.1:9", "--admin-token-file", str(token)]
    result = CliRunner().invoke(cli, ["controllers", "list", *where])
    assert isinstance(result.exception, GantryError)
    said = "does not answer: 127.0.0.1:9 cannot be reached; asked was 127.0.0.1:9, which must be"
    assert said in str(result.exception)
