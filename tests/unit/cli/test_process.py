"""What a process does with its settings before it serves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from gantry_cli.process import run_process
from gantry_protocol.errors import ConfigError
from gantry_protocol.process import log
from gantry_protocol.settings.logs import LoggedProcess

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, least, before = root.handlers[:], root.level, log.level()
    yield
    root.handlers[:] = handlers
    root.setLevel(least)
    log.set_level(before)


@pytest.mark.parametrize(
    ("given", "level"),
    [({}, "info"), ({"log_level": "warning"}, "warning"), ({"log_level": "Debug"}, "debug")],
)
def test_a_process_logs_at_its_level(given: dict[str, str], level: str) -> None:
    served: list[str] = []

    async def serve(settings: LoggedProcess, stop: asyncio.Event) -> None:
        served.append(log.level())

    assert run_process("broker", LoggedProcess, serve, given) == 0
    assert served == [level]


def test_a_level_that_is_none_is_refused_with_those_there_are() -> None:
    async def serve(settings: LoggedProcess, stop: asyncio.Event) -> None:
        raise AssertionError

    with pytest.raises(
        ConfigError, match="'loud': input should be 'debug', 'info', 'warning' or 'error'"
    ):
        run_process("broker", LoggedProcess, serve, {"log_level": "loud"})
