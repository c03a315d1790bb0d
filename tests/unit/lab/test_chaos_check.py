"""`gantry_lab chaos check`: a verdict in words and an exit code for any file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gantry_chaos.history.lines import Line, Request, Response, write_all
from gantry_lab.main import lab


def asked(client: str, op: str, at: int, extra: str = "") -> Request:
    return Request(client, op, None, "orders", at, extra)


def told(client: str, op: str, value: str, at: int, index: int) -> Response:
    return Response(client, op, "SUCCESS", value, "orders", at, 1, f"index={index}")


GOOD: list[Line] = [
    asked("a", "get", 0),
    told("a", "get", "1:1:1:1", 1, 5),
    asked("a", "alter", 2, "asked=1:1:1:1,2"),
    told("a", "alter", "1:1:2:1,2", 3, 6),
    asked("b", "get", 4),
    told("b", "get", "1:1:2:1,2", 5, 6),
]
STALE: list[Line] = [*GOOD[:5], told("b", "get", "1:1:1:1", 5, 5)]
MESSAGES: list[Line] = [
    Request("p", "enqueue", "7", "k", 0),
    Response("p", "enqueue", "SUCCESS", "7", "k", 1, 1, "position=orders/0@3"),
    Response("c", "dequeue", "SUCCESS", "7", "k", 2, 0, "position=orders/0@3"),
]


def check(path: Path, *args: str) -> Result:
    return CliRunner().invoke(lab, ["chaos", "check", str(path), *args], standalone_mode=False)


def written(path: Path, lines: list[Line]) -> Path:
    write_all(path / "history.tsv", lines)
    return path / "history.tsv"


def test_good_history(tmp_path: Path) -> None:
    found = check(written(tmp_path, [*GOOD, *MESSAGES]))
    assert found.return_value == 0
    assert "groups passed: groups=1, operations=3, unknown=0, writes=1" in found.output
    assert "messages passed" in found.output
    assert found.output.endswith("Nothing in the history is wrong.\n")


def test_stale_read_is_told_in_words(tmp_path: Path) -> None:
    found = check(written(tmp_path, STALE))
    assert found.return_value == 1
    assert "groups FAILED" in found.output
    assert "orders: no order explains the answers; the best stops at b get" in found.output
    assert "An index goes back in time: b get: 1:1:1:1 at index 5" in found.output
    assert found.output.endswith("The history is not what it should be: groups.\n")


def test_what_was_not_drained_is_not_passed(tmp_path: Path) -> None:
    file = written(tmp_path, MESSAGES)
    assert check(file).return_value == 0
    assert check(file, "--not-drained").return_value == 1


def test_json_is_a_line_per_verdict(tmp_path: Path) -> None:
    found = check(written(tmp_path, [*STALE, *MESSAGES]), "--json")
    assert found.return_value == 1
    assert [line[:12] for line in found.output.splitlines()] == ['{"checker":"'] * 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file"),
        (b"", "holds no operation, so there is nothing to judge"),
        (b"a\tjump\tREQUEST\tnull\tnull\t1\tnull\n", "No checker knows jump in"),
        (b"\xff\xfe\n", "line 1: "),
        (b"a\tget\tRESPONSE\tSUCCESS\t1\tnull\t1\t1\tnull\t-1\n", "a did not ask this"),
    ],
    ids=["no file", "nothing", "unknown operation", "no text", "contradiction"],
)
def test_what_is_no_history_is_one_sentence(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "history.tsv"
    if content is not None:
        file.write_bytes(content)
    found = check(file)
    assert found.exception is not None
    assert sentence in str(found.exception)
