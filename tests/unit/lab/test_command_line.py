"""The lab's command line explains itself, and says what is wrong in one sentence."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner
from gantry_cli.lazy import CommandEntry
from gantry_lab.main import COMMANDS, NAME, lab, main


def all_commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command and group, with its path."""
    found: list[tuple[tuple[str, ...], click.Command]] = []

    def walk(path: tuple[str, ...], command: click.Command) -> None:
        found.append((path, command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk((*path, name), child)

    walk((), lab)
    return found


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_help_line_in_the_table_is_the_commands_own(entry: CommandEntry) -> None:
    command = lab.get_command(click.Context(lab), entry.name)
    assert command is not None
    assert command.get_short_help_str(limit=200).rstrip(".") == entry.help.rstrip(".")


@pytest.mark.parametrize(
    ("path", "command"),
    all_commands(),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_command_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(lab, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            described = parameter.help or parameter.show_default or parameter.is_eager
            assert described, f"{parameter.opts} has neither help nor a shown default"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nope"], "No such command"),
        (["soak", "t", "--group", "orders"], "missing: --controllers, --admin-token-file."),
        (["soak", "t", "--controllers", "c:1", "--group", "g"], "missing: --admin-token-file."),
        (
            [
                *("soak", "t", "--nameserver", "127.0.0.1:1", "--group", "g"),
                *("--controllers", "c:1", "--admin-token-file", "/does/not/exist"),
            ],
            "/does/not/exist cannot be read",
        ),
        (["soak", "t", "--http", "8080"], "write HOST:PORT"),
        (["soak", "t", "--http", "127.0.0.1:65536"], "write HOST:PORT"),
        (["soak", "t", "--duration", "0"], "--duration"),
        (["soak", "t", "--lanes", "0"], "--lanes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_sentence(
    args: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["gantry_lab", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    (sentence,) = said.err.strip().splitlines()
    assert sentence.startswith(f"{NAME}: ")
    assert words in sentence
