"""The journal of faults: what is open, torn ends, damage, other versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_chaos.core.actions import Absent, Command
from gantry_chaos.errors import JournalError, JournalInUseError
from gantry_chaos.plan.journal import Header, Journal, line, parse

UNDO = (Command(("iptables", "-D", "x"), "net:[1]", may_fail=True), Absent(("a",), "x", "net:[1]"))


def written(path: Path) -> bytes:
    with Journal(path, "run-1") as journal:
        journal.begin("a", ("shop/p",), UNDO)
        journal.injected("a")
        journal.begin("b", ("shop/q",), ())
        journal.healed("a")
    return path.read_bytes()


def test_what_has_begun_and_is_not_healed_is_open(tmp_path: Path) -> None:
    written(tmp_path / "j")
    with Journal(tmp_path / "j", "another name") as journal:
        assert journal.run == "run-1"
        assert [begin.fault for begin in journal.open_faults] == ["b"]
        journal.healed("b")
    with Journal(tmp_path / "j", "") as journal:
        assert journal.open_faults == []


def test_a_run_that_is_alive_keeps_its_journal(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j", "r"),
        pytest.raises(JournalInUseError, match="belongs to a run that is still alive"),
    ):
        Journal(tmp_path / "j", "r")
    Journal(tmp_path / "j", "r").__exit__(None, None, None)


def test_undo_survives_the_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", "r") as journal:
        journal.begin("a", ("shop/p",), UNDO)
    with Journal(tmp_path / "j", "r") as journal:
        assert journal.open_faults[0].undo == UNDO


def test_a_file_torn_anywhere_keeps_what_was_durable(tmp_path: Path) -> None:
    """Cut at every byte: exactly the whole lines count, and it can be continued."""
    data = written(tmp_path / "j")
    for length in range(len(data) + 1):
        (tmp_path / "j").write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        with Journal(tmp_path / "j", "run-1") as journal:
            opened = [begin.fault for begin in journal.open_faults]
            assert opened == [[], [], ["a"], ["a"], ["a", "b"], ["b"]][whole]
            journal.begin("c", (), ())
        with Journal(tmp_path / "j", "run-1") as journal:
            assert [begin.fault for begin in journal.open_faults] == [*opened, "c"]


def test_damage_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "j"))
    at = data.index(b"\n") + 12
    data[at] ^= 1
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(JournalError, match=r"damaged at byte \d+: the line's checksum"):
        Journal(tmp_path / "j", "run-1")
    assert (tmp_path / "j").read_bytes() == data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(Header(2, "r")) + b"x\n", "format 2, this version reads 1"),
        (line(Header(1, "r")) + line(Header(1, "r")), "header"),
        (line(Header(2, "r")), "format 2"),
        (b"hello\nworld\n", "checksum"),
    ],
)
def test_what_is_no_journal_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(JournalError, match=reason):
        parse(text, "j")
