"""How a volume gets its id, and what is said while it gets none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from gantry_broker.control import joining
from gantry_broker.control.requests import Speaker
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import to_ext
from gantry_protocol.headers.controller import GetNextBrokerIdResponseHeader
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId

ME = Speaker("c", "g", "127.0.0.1:1", 2, "aa", None)
REFUSAL = "no quorum key was shown"


async def test_what_controllers_have_against_a_broker_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "RETRY_FIRST_S", 0)
    refusals = [4]

    async def call(command: RemotingCommand) -> Outcome:
        if command.code == RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            header = GetNextBrokerIdResponseHeader("c", "g", BrokerId(1))
            return reply(command, ext=to_ext(header))
        if refusals[0]:
            refusals[0] -= 1
            return reply(command, ResponseCode.NO_PERMISSION, REFUSAL)
        return reply(command)

    with caplog.at_level(logging.WARNING, "gantry"):
        assert await joining.Joining(ME, tmp_path, call).obtain() == 1
    (record,) = caplog.records
    facts = record.__dict__["facts"]
    assert (facts["code"], facts["reason"]) == (ResponseCode.NO_PERMISSION, REFUSAL)
