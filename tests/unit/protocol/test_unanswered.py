"""What is kept while frames are passed on: what the next master is given, what it is refused."""

from __future__ import annotations

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, SerializeType
from gantry_protocol.errors import FrameError
from gantry_protocol.frame import MAX_FRAME_BYTES, encode
from gantry_protocol.remoting import unanswered
from gantry_protocol.remoting.glance import FrameCutter, Glimpse
from gantry_protocol.remoting.unanswered import MAX_HEARTBEAT_BYTES, Unanswered

SEND, PULL, BEAT = 310, 11, 34


def said(code: int, opaque: int, *, flag: int = 0, body: bytes = b"") -> Glimpse:
    frame = encode(RemotingCommand(code=code, opaque=opaque, flag=flag, body=body))
    return Glimpse(code, opaque, flag, frame)


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_frames_are_cut_whole_whatever_the_chunks(kind: SerializeType, chunk: int) -> None:
    commands = [
        RemotingCommand(
            code=code, opaque=-code, flag=code % 3, ext={"flag": "7", "code": "9"}, body=b"x" * code
        )
        for code in (310, 11, 34)
    ]
    for command in commands:
        command.serialize_type = kind
    data = b"".join(map(encode, commands))
    cutter, found = FrameCutter(), []
    for start in range(0, len(data) - 1, chunk):
        found += cutter.feed(data[start : min(start + chunk, len(data) - 1)])
    assert cutter.pending_bytes == len(encode(commands[2])) - 1
    found += cutter.feed(data[-1:])
    assert found == [Glimpse(one.code, one.opaque, one.flag, encode(one)) for one in commands]
    assert cutter.take_rest() == b""


def test_a_head_that_is_written_strangely_is_read_as_it_is_served() -> None:
    header = b'{ "code" : "310", "language" : 3, "opaque":7, "extFields" : {"n":7} }'
    frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    assert FrameCutter().feed(frame) == [Glimpse(310, 7, 0, frame)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(MAX_FRAME_BYTES.to_bytes(4, "big") + bytes(4), id="too long"),
        pytest.param(bytes((0, 0, 0, 4, 0, 0, 0, 9)), id="header longer than the frame"),
        pytest.param(bytes((0, 0, 0, 4, 2, 0, 0, 0)), id="no such codec"),
        pytest.param(bytes((0, 0, 0, 4, 1, 0, 0, 0)), id="no binary header"),
        pytest.param(bytes((0, 0, 0, 5, 0, 0, 0, 1)) + b"x", id="no JSON"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameCutter().feed(data)


def test_the_next_master_is_given_what_is_unanswered_once_and_in_order() -> None:
    table = Unanswered()
    first, second, pull = said(SEND, 1), said(SEND, 2), said(PULL, 3)
    for glimpse in (first, second, pull):
        table.give(glimpse)
    table.answered(1)
    later = said(SEND, 4)
    table.wait(later)
    handover = table.hand_over()
    assert handover.frames == [second.frame, pull.frame, later.frame]
    assert handover.marked == [2], "what no master was given cannot be stored"
    assert handover.refused == []
    assert table.hand_over().frames == handover.frames, "for the master after that one"
    assert table.hand_over().marked == [2, 4]
    for opaque in (2, 3, 4):
        table.answered(opaque)
    assert table.hand_over() == ([], [], [])
    assert (len(table), table.size_bytes, table.is_quiet) == (0, 0, True)


@pytest.mark.parametrize("code", [RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE])
def test_acknowledgements_by_receipts_go_to_the_next_master(code: int) -> None:
    table = Unanswered()
    table.give(said(code, 1))
    assert table.hand_over() == ([said(code, 1).frame], [], [])


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.POP_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        99,
    ],
)
def test_what_must_not_be_done_twice_is_refused_unless_nobody_was_given_it(code: int) -> None:
    table = Unanswered()
    table.give(said(code, 1))
    table.wait(said(code, 2))
    handover = table.hand_over()
    assert handover.frames == [said(code, 2).frame]
    assert handover.refused == [said(code, 1)]
    assert len(table) == 1


def test_oneway_requests_and_answers_of_the_client_go_to_one_master() -> None:
    table = Unanswered()
    table.give(said(15, 1, flag=2))
    table.wait(said(15, 2, flag=2))
    table.wait(said(0, 3, flag=1))
    assert len(table.hand_over().frames) == 2
    assert table.hand_over() == ([], [], [])
    assert table.size_bytes == 0


def test_only_pulls_are_not_waited_for() -> None:
    table = Unanswered()
    table.give(said(PULL, 1))
    assert table.is_quiet
    table.give(said(SEND, 2))
    assert not table.is_quiet
    table.answered(2)
    assert table.is_quiet


def test_it_is_full_by_bytes_and_by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered, "MAX_BYTES", 1000)
    monkeypatch.setattr(unanswered, "MAX_COUNT", 3)
    table = Unanswered()
    table.give(said(SEND, 1, body=bytes(1000)))
    assert table.is_full
    table.answered(1)
    assert not table.is_full
    for opaque in range(4):
        table.give(said(PULL, opaque))
    assert table.is_full
    assert len(table.give_up().given) == 4
    assert not table.is_full
    assert table.size_bytes == 0


def test_what_is_given_up_says_what_a_master_may_have_carried_out() -> None:
    table = Unanswered()
    table.give(said(SEND, 1))
    table.wait(said(SEND, 2))
    table.wait(said(SEND, 3, flag=2))
    given, waiting = table.give_up()
    assert [glimpse.opaque for glimpse in given] == [1]
    assert [glimpse.opaque for glimpse in waiting] == [2], "nobody waits for a oneway send"


def test_the_last_heartbeat_is_kept_until_the_client_leaves_a_group() -> None:
    table = Unanswered()
    table.give(said(BEAT, 1))
    table.wait(said(BEAT, 2))
    assert table.heartbeat == said(BEAT, 2).frame
    table.give(said(BEAT, 3, body=bytes(MAX_HEARTBEAT_BYTES)))
    assert table.heartbeat is None
    table.give(said(BEAT, 4))
    table.give(said(RequestCode.UNREGISTER_CLIENT, 5))
    assert table.heartbeat is None


def test_what_came_here_marked_stays_marked_whenever_its_bytes_come() -> None:
    table = Unanswered()
    table.wait(said(SEND, 1))
    table.claim({1, 2})
    table.wait(said(SEND, 2))
    table.wait(said(SEND, 3))
    assert table.hand_over().marked == [1, 2]


def test_a_number_that_is_used_twice_waits_for_one_answer() -> None:
    table = Unanswered()
    table.give(said(SEND, 1))
    table.give(said(SEND, 1, body=b"again"))
    assert table.hand_over().frames == [said(SEND, 1, body=b"again").frame]
    table.answered(1)
    assert (len(table), table.size_bytes) == (0, 0)
