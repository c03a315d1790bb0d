"""What unmodified Java clients once heard, they hear today: conversations, byte for byte.

When an answer is meant to change, `make record` has the same conversations anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode as Code
from gantry_protocol.command import FLAG_RESPONSE, RemotingCommand
from gantry_protocol.frame import FrameDecoder, SerializeType
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace
from support import conversations
from support.conversations import HEARS, SAYS, Conversation

RECORDED = {path.name.partition(".txt")[0]: path for path in sorted(conversations.FOLDER.iterdir())}
SAID_BY_CLIENTS = {
    Code.GET_ROUTEINFO_BY_TOPIC, Code.HEART_BEAT, Code.UNREGISTER_CLIENT,
    Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.QUERY_MESSAGE,
    Code.GET_CONSUMER_LIST_BY_GROUP, Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET,
    Code.PULL_MESSAGE, Code.CONSUMER_SEND_MSG_BACK, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ,
    Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MIN_OFFSET,
    Code.GET_MAX_OFFSET, Code.END_TRANSACTION,
}  # fmt: skip
SAID_BY = {"4.9.8": SAID_BY_CLIENTS, "5.3.3": {*SAID_BY_CLIENTS, Code.LITE_PULL_MESSAGE}}
SAID_BY_US = {Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.CHECK_TRANSACTION_STATE}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_conversation_is_had_again(name: str, tmp_path: Path) -> None:
    conversations.replay(conversations.read(RECORDED[name]), tmp_path)


@pytest.mark.parametrize("version", SAID_BY)
@pytest.mark.parametrize("headers", SerializeType, ids=lambda headers: headers.name)
def test_every_set_was_recorded(version: str, headers: SerializeType) -> None:
    """All that sets (a) to (d) say, with the headers that the file is named after."""
    recorded = conversations.read(RECORDED[f"{version}-{headers.name.lower()}"])
    asked = _commands(recorded, SAYS)
    assert {one.code for one in asked} >= SAID_BY[version]
    assert {one.serialize_type for one in asked} == {headers}
    ours = {one.code for one in _commands(recorded, HEARS) if not one.flag & FLAG_RESPONSE}
    assert ours == SAID_BY_US


def _commands(recorded: Conversation, kind: str) -> list[RemotingCommand]:
    decoders: dict[str, FrameDecoder] = {}
    found = []
    for event in recorded.events:
        if event.kind == kind:
            decoder = decoders.setdefault(event.name, FrameDecoder(expect_preamble=False))
            found += decoder.feed(event.data)
    return found


Bend = Callable[[RemotingCommand], RemotingCommand | None]


def _opaque(answer: RemotingCommand) -> RemotingCommand:
    answer.opaque += 1
    return answer


def _code(answer: RemotingCommand) -> RemotingCommand:
    answer.code += 1
    return answer


def _remark(answer: RemotingCommand) -> RemotingCommand:
    answer.remark = f"{answer.remark}."
    return answer


def _without(field: str) -> Bend:
    def bend(answer: RemotingCommand) -> RemotingCommand:
        del (answer.ext or {})[field]
        return answer

    return bend


def _body(answer: RemotingCommand) -> RemotingCommand:
    answer.body = answer.body[:-1] + bytes([answer.body[-1] ^ 1]) if answer.body else b"?"
    return answer


def _nothing(_: RemotingCommand) -> None:
    return None


@pytest.mark.parametrize(
    ("code", "bend"),
    [
        pytest.param(Code.HEART_BEAT, _opaque, id="opaque-of-a-heartbeat"),
        pytest.param(Code.PULL_MESSAGE, _code, id="code-of-a-pull"),
        pytest.param(Code.PULL_MESSAGE, _body, id="bit-of-a-record"),
        pytest.param(Code.PULL_MESSAGE, _without("suggestWhichBrokerId"), id="field-of-a-pull"),
        pytest.param(Code.SEND_MESSAGE_V2, _without("queueOffset"), id="field-of-a-send"),
        pytest.param(Code.GET_ROUTEINFO_BY_TOPIC, _remark, id="remark-of-a-route"),
        pytest.param(Code.UNREGISTER_CLIENT, _nothing, id="no-answer-at-the-end"),
        pytest.param(Code.NOTIFY_CONSUMER_IDS_CHANGED, _nothing, id="no-notice-of-a-member"),
        pytest.param(Code.CHECK_TRANSACTION_STATE, _without("msgId"), id="field-of-a-check"),
    ],
)
def test_a_bent_answer_is_noticed(
    code: int, bend: Bend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, send_reply = Connection.send, Connection._send_reply
    bent = []

    def sends(conn: Connection, command: RemotingCommand) -> None:
        if (said := _bent(command.code, command)) is not None:
            send(conn, said)

    def replies(conn: Connection, asked: RemotingCommand, answer: RemotingCommand) -> None:
        if (said := _bent(asked.code, answer)) is not None:
            send_reply(conn, replace(asked, opaque=said.opaque), said)

    def whole_replies(conn: Connection, asked: RemotingCommand, frame: bytes) -> None:
        (answer,) = FrameDecoder().feed(frame)
        conn.reply(asked, answer)

    def _bent(of: int, command: RemotingCommand) -> RemotingCommand | None:
        if of != code:
            return command
        bent.append(command)
        return bend(command)

    monkeypatch.setattr(Connection, "send", sends)
    monkeypatch.setattr(Connection, "_send_reply", replies)
    monkeypatch.setattr(Connection, "reply_frame", whole_replies)
    with pytest.raises(AssertionError, match=r"was recorded|nothing came|never recorded"):
        conversations.replay(conversations.read(RECORDED["5.3.3-json"]), tmp_path)
    assert bent


def test_what_nobody_waits_for_is_noticed(tmp_path: Path) -> None:
    recorded = conversations.read(RECORDED["5.3.3-json"])
    shorter = [event for event in recorded.events if event.tick <= 1 or event.kind != HEARS]
    with pytest.raises(AssertionError, match="never recorded"):
        conversations.replay(recorded._replace(events=shorter), tmp_path)
