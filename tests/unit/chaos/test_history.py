"""History lines, operations and observations: what is written is read, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_chaos.errors import HistoryError
from gantry_chaos.history import lines, observations
from gantry_chaos.history.lines import FaultMark, Line, Recorder, Request, Response
from gantry_chaos.history.observations import LeaderSeen, Observation, OffsetSeen, RoleSeen
from gantry_chaos.history.operations import Window, history
from gantry_protocol.errors import GantryError
from hypothesis import given
from hypothesis import strategies as st

LINES: list[Line] = [
    Request("c1", "enqueue", "7", "k", 100),
    FaultMark("cut", "start", 150),
    Response("c1", "enqueue", "SUCCESS", "7", "k", 220, 120, "position=orders/0@3;lost=1"),
    Request("c2", "enqueue", "8", None, 230),
    Response("c3", "dequeue", "SUCCESS", "7", None, 240, 0, "position=orders/0@3", 140),
    FaultMark("cut", "end", 300),
]


def test_lines_look_as_openchaos_writes_them() -> None:
    assert [lines.encode(line) for line in LINES] == [
        "c1\tenqueue\tREQUEST\t7\tk\t100\tnull",
        "fault\tcut\tstart\t150",
        "c1\tenqueue\tRESPONSE\tSUCCESS\t7\tk\t220\t120\tposition=orders/0@3;lost=1\t-1",
        "c2\tenqueue\tREQUEST\t8\tnull\t230\tnull",
        "c3\tdequeue\tRESPONSE\tSUCCESS\t7\tnull\t240\t0\tposition=orders/0@3\t140",
        "fault\tcut\tend\t300",
    ]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lines.write_all(tmp_path / "h", LINES)
    assert list(lines.read(tmp_path / "h")) == LINES
    with (tmp_path / "h").open("a") as file:
        file.write("c2\tenqueue\tRESP")
    assert list(lines.read(tmp_path / "h")) == LINES, "a killed writer's last line does not count"


WORD = st.text(st.characters(exclude_characters="\t\r\n", exclude_categories=["Cs"]), min_size=1)


@given(WORD.filter(lambda word: word != "null"), st.integers(0, 10**15))
def test_any_field_survives(word: str, at_ms: int) -> None:
    line = Response(word, "enqueue", "UNKNOWN", word, word, at_ms, 3)
    if len(lines.encode(line).encode()) <= lines.LINE_BYTES_MAX:
        assert lines.decode(lines.encode(line)) == line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a b c", "1 fields that are no request"),
        ("c1\tenqueue\tREQUEST\t7\tk\tsoon\tnull", "'soon' is no whole number"),
        ("c1\tenqueue\tRESPONSE\tMAYBE\t7\tk\t1\t1\tnull\t-1", "the outcome is 'MAYBE'"),
        ("fault\tcut\tmiddle\t150", "4 fields"),
        ("\xff".encode("latin-1"), "codec"),
        ("x" * 5000, "a line of more than 4096 bytes"),
    ],
)
def test_what_is_no_line_is_named(tmp_path: Path, text: str | bytes, reason: str) -> None:
    good = lines.encode(LINES[0]).encode() + b"\n"
    bad = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "h").write_bytes(good + bad + b"\n")
    with pytest.raises(HistoryError, match=rf"damaged at byte {len(good)}: .*{reason}"):
        list(lines.read(tmp_path / "h"))


def test_a_history_is_bounded(tmp_path: Path) -> None:
    with Recorder(tmp_path / "h", lines_max=2) as recorder:
        recorder.write(LINES[0])
        with pytest.raises(ValueError, match="tab"):
            recorder.write(Request("c\t1", "enqueue", "7", None, 1))
        recorder.write(LINES[1])
        with pytest.raises(HistoryError, match="as long as a history may be"):
            recorder.write(LINES[2])
    assert len(list(lines.read(tmp_path / "h", lines_max=2))) == 2
    with pytest.raises(HistoryError, match="more than 1 lines"):
        list(lines.read(tmp_path / "h", lines_max=1))


def test_requests_and_responses_are_joined() -> None:
    found = history(LINES, "h")
    told = [(one.client, one.outcome, one.called_ms, one.returned_ms) for one in found.operations]
    assert told == [
        ("c1", "SUCCESS", 100, 220),
        ("c2", "UNKNOWN", 230, None),  # never answered
        ("c3", "SUCCESS", 240, 240),
    ]
    assert found.operations[0].extra == {"position": "orders/0@3", "lost": "1"}
    assert found.faults == (Window("cut", 150, 300),)


@pytest.mark.parametrize(
    ("contradiction", "reason"),
    [
        ([LINES[0], LINES[0]], "Line 2 of h contradicts those before it: c1 asks while it waits"),
        ([LINES[2]], "c1 did not ask this"),
        ([LINES[0], Response("c1", "read", "SUCCESS", "", None, 200, 1)], "did not ask this"),
        ([LINES[0], Response("c1", "enqueue", "SUCCESS", "7", "k", 99, 0)], "answered too early"),
        ([LINES[1], LINES[1]], "cut begins twice"),
        ([LINES[5]], "cut ends and never began"),
    ],
)
def test_contradictions_are_refused(contradiction: list[Line], reason: str) -> None:
    with pytest.raises(GantryError, match=reason):
        history(contradiction, "h")


def test_a_fault_may_last_to_the_end() -> None:
    assert history([LINES[1]], "h").faults == (Window("cut", 150, None),)


def test_observations_are_lines_too(tmp_path: Path) -> None:
    seen: list[Observation] = [
        RoleSeen(1, "orders", "orders-broker-0", "master", 4),
        LeaderSeen(2, "gantry-controller-1", 7),
        OffsetSeen(3, "orders", "confirm", 4096),
    ]
    path = tmp_path / "o"
    path.write_bytes(observations.encode(seen) + b'{"type":"ro')
    assert list(observations.read(path)) == seen
    path.write_bytes(b'{"type":"weather"}\n')
    with pytest.raises(HistoryError, match="byte 0: no observation"):
        list(observations.read(path))
    path.write_bytes(b"x" * 5000)
    with pytest.raises(HistoryError, match="more than 4096 bytes"):
        list(observations.read(path))
