"""Bars: where they are shown, and where they would be in the way."""

from __future__ import annotations

import sys

import pytest
from gantry_cli.progress import counted, progress, told


@pytest.mark.parametrize(
    ("stderr", "stdout", "printing", "shown"),
    [
        (True, True, False, True),
        (True, True, True, False),
        (True, False, True, True),
        (False, True, False, False),
    ],
    ids=["nothing is printed", "among messages", "messages go to a file", "stderr is a file"],
)
def test_a_bar_is_on_a_terminal_that_has_nothing_else(
    stderr: bool,
    stdout: bool,
    printing: bool,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: stderr)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: stdout)
    monkeypatch.setenv("TERM", "xterm")
    with counted("received", 2, printing=printing) as advance:
        advance()
        advance()
    out, err = capsys.readouterr()
    assert out == ""
    assert ("2/2" in err) == shown


def test_nothing_is_said_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1) as advance, told() as tell:
        advance("case")
        tell("half done", 0.5)
    assert capsys.readouterr() == ("", "")
