"""`gantry fronts`: what it asks of the leader, and how it says what it heard."""

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
from gantry_protocol.admin import DeclaredFronts, FrontIndex, FrontsView, GroupView
from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

EDGE = DeclaredFronts(name="edge", address="10.96.0.9", first_port=10950, ports=2)
GROUPS = [
    FrontIndex(group=name, index=index, served_by_fronts=index < 2)
    for index, name in enumerate(("orders", "bills", "late"))
]


def group(name: str, master: str | None, **fields: Any) -> GroupView:
    return GroupView(
        cluster="gantry",
        name=name,
        master_address=master,
        master_epoch=1,
        sync_state_set=[],
        sync_state_set_epoch=1,
        **fields,
    )


class Leader:
    """The admin API of a leader that knows three groups, on a loop of its own."""

    def __init__(self, *declared: DeclaredFronts) -> None:
        self.view = FrontsView(fronts=list(declared), groups=GROUPS)
        self.changes: list[tuple[str, str, Any]] = []
        self.refusal = ""
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
        app.router.add_get("/v1/groups", self._groups)
        app.router.add_get("/v1/clusters/{cluster}/fronts", self._fronts)
        app.router.add_route("*", "/v1/clusters/{cluster}/fronts/{name}", self._change)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _groups(self, _: web.Request) -> web.Response:
        known = [
            group("orders", "10.0.0.1:10911"),
            group("bills", None),
            group("late", "10.0.0.3:10911"),
            group("old", "10.0.0.4:10911", retired=True),
        ]
        rows = [json.loads(view.to_json()) for view in known]
        return web.json_response({"index": 1, "groups": rows})

    async def _fronts(self, _: web.Request) -> web.Response:
        return web.json_response(text=self.view.to_json())

    async def _change(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.changes.append((request.method, request.path, body))
        if self.refusal:
            error = {"error": "INVALID_REQUEST", "message": self.refusal}
            return web.json_response(error, status=409)
        return web.Response(status=204)


def run(leader: Leader, tmp_path: Path, *words: str) -> Result:
    """`gantry fronts WORDS`."""
    token = tmp_path / "token"
    token.write_text("secret")
    where = ["--controllers", f"127.0.0.1:{leader.port}", "--admin-token-file", str(token)]
    return CliRunner().invoke(cli, ["fronts", *words, *where])


def test_list_shows_who_is_declared_and_the_port_of_each_group(tmp_path: Path) -> None:
    with Leader(EDGE).serving() as leader:
        result = run(leader, tmp_path, "list")
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.output.splitlines()] == [
        ["CLUSTER", "FRONTS", "ADDRESS", "PORTS"],
        ["gantry", "edge", "10.96.0.9", "10950-10951"],
        [],
        ["CLUSTER", "GROUP", "INDEX", "PORT", "MASTER"],
        ["gantry", "orders", "0", "10950", "10.0.0.1:10911"],
        ["gantry", "bills", "1", "10951", "-"],
        ["gantry", "late", "2", "-", "10.0.0.3:10911"],
    ]


def test_list_for_programs(tmp_path: Path) -> None:
    with Leader(EDGE).serving() as leader:
        result = run(leader, tmp_path, "list", "--json")
    (cluster,) = json.loads(result.output)
    assert cluster["cluster"] == "gantry"
    assert cluster["fronts"] == [
        {"name": "edge", "address": "10.96.0.9", "firstPort": 10950, "ports": 2}
    ]
    assert cluster["groups"][2] == {"group": "late", "index": 2, "servedByFronts": False}


def test_declare_says_who_is_led_there(tmp_path: Path) -> None:
    with Leader(EDGE).serving() as leader:
        result = run(leader, tmp_path, "declare", "edge", "--address", "10.96.0.9", "--ports", "2")
    assert result.exit_code == 0, result.output
    body = {"address": "10.96.0.9", "firstPort": 10950, "ports": 2}
    assert leader.changes == [("PUT", "/v1/clusters/gantry/fronts/edge", body)]
    assert "10.96.0.9, ports 10950 to 10951: 2 of 3 broker groups." in result.output


def test_refusal_of_the_controllers_is_told_in_their_words(tmp_path: Path) -> None:
    with Leader(EDGE).serving() as leader:
        leader.refusal = "Clients of cluster gantry are led to fronts edge: remove those."
        result = run(leader, tmp_path, "declare", "other", "--address", "h")
    assert isinstance(result.exception, GantryError)
    assert leader.refusal in str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("declare", "edge"),
        ("declare", "edge", "--address", ""),
        ("declare", "edge", "--address", "h", "--ports", "65"),
        ("declare", "edge", "--address", "h", "--first-port", "0"),
        ("remove",),
    ],
)
def test_what_cannot_be_meant_is_not_asked(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Leader(EDGE).serving() as leader:
        assert run(leader, tmp_path, *words).exit_code == 2
    assert leader.changes == []


def test_remove_leads_back_and_says_for_how_long_fronts_are_needed(tmp_path: Path) -> None:
    with Leader(EDGE).serving() as leader:
        result = run(leader, tmp_path, "remove", "edge", "--cluster", "gantry")
    assert result.exit_code == 0, result.output
    assert leader.changes == [("DELETE", "/v1/clusters/gantry/fronts/edge", None)]
    assert "for 30 seconds more" in result.output


@pytest.mark.parametrize("declared", [(), (EDGE,)])
def test_remove_of_what_is_not_there_says_what_is(
    tmp_path: Path, declared: tuple[DeclaredFronts, ...]
) -> None:
    with Leader(*declared).serving() as leader:
        result = run(leader, tmp_path, "remove", "egde")
    assert isinstance(result.exception, GantryError)
    there = "edge" if declared else "nothing"
    assert str(result.exception).endswith(f"declared is: {there}.")
    assert leader.changes == []
