"""The command line teaches, starts fast, and says what is wrong in one sentence."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from gantry_cli.lazy import CommandEntry, LazyGroup
from gantry_cli.main import COMMANDS, cli, main

HEAVY = (
    "aiohttp",
    "kopf",
    "kubernetes",
    "pydantic",
    "rich",
    "msgspec",
    "asyncio",
    "yaml",
    "pyspark",
    "pyarrow",
    "numpy",
)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """The installed command, as a person starts it."""
    return subprocess.run(
        [sys.executable, "-m", "gantry_cli", *args], capture_output=True, text=True, check=False
    )


def all_commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command and group below `gantry`, with its path."""
    found: list[tuple[tuple[str, ...], click.Command]] = []

    def walk(path: tuple[str, ...], command: click.Command) -> None:
        found.append((path, command))
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=path[-1] if path else "gantry")
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk((*path, name), child)

    walk((), cli)
    return found


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_help_line_in_the_table_is_the_commands_own(entry: CommandEntry) -> None:
    assert isinstance(cli, LazyGroup)
    command = cli.get_command(click.Context(cli), entry.name)
    assert command is not None
    assert command.get_short_help_str(limit=200).rstrip(".") == entry.help.rstrip(".")


@pytest.mark.parametrize(
    ("path", "command"),
    all_commands(),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_command_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            described = parameter.help or parameter.show_default or parameter.is_eager
            assert described, f"{parameter.opts} has neither help nor a shown default"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from gantry_cli.main import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_help_groups_commands_and_gives_examples() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    for words in ("Try it:", "Messages:", "Processes", "Examples:", "gantry demo"):
        assert words in output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--nope"], "No such option"),
        (["nope"], "No such command"),
        (["topics", "create"], "Missing argument"),
        (["topics", "create", "t", "--queues", "0"], "--queues"),
        (["produce", "t", "--stdin", "--body", "x"], "--stdin brings its own messages"),
        (
            ["topics", "list", "--nameserver", "127.0.0.1:1"],
            "No name server answers at 127.0.0.1:1",
        ),
        (["topics", "list", "--nameserver", "127.0.0.1:x"], "127.0.0.1:x"),
        (["pipeline", "audit"], "--tier"),
        (["pipeline", "audit", "--tier", "file:///does/not/exist"], "is no directory"),
        (["pipeline", "audit", "--tier", "gs://b/p"], "file:// and s3:// can"),
        (["pipeline", "audit", "--tier", "/", "--confirm", "1"], "give --shard, too"),
        (["tier", "verify", "file:///", "--confirm", "1"], "give --group, too"),
        (["tier", "ls", "ftp://host/mq"], "is no store: write file:///DIRECTORY"),
        (["tier", "ls", "file:///does/not/exist"], "is no directory"),
        (["pipeline", "audit", "--tier", "s3://u:p@b/p"], "holds credentials"),
        (["pipeline", "audit", "--tier", "/", "--driver-memory", "2"], "write 2g or 1500m"),
        (["pipeline", "run", "report", "--tier", "/", "--out", "/none/x.html"], "does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_sentence(
    args: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["gantry", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert_one_sentence(words, ended.value.code, *capsys.readouterr())


def assert_one_sentence(words: str, code: object, output: str, errors: str) -> None:
    assert code == 2
    assert output == ""
    (sentence,) = errors.strip().splitlines()
    assert sentence.startswith("gantry: ")
    assert words in sentence


def test_the_installed_command_ends_so() -> None:
    done = run("tier", "ls", "file:///does/not/exist")
    assert_one_sentence("is no directory", done.returncode, done.stdout, done.stderr)


def test_version() -> None:
    assert run("--version").stdout.startswith("gantry, version 0.")


WATCHED = """
import click, gc
seen = []
def note(phase, facts):
    seen.append(phase)
gc.callbacks.append(note)
kept = [[] for _ in range(10_000)]
gc.callbacks.remove(note)
command = click.Command("c", help=f"{len(seen)} collections")
"""


def test_no_garbage_is_looked_for_during_the_import_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes start a fifth sooner; afterwards the collector works, whatever came of it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "watched_command.py").write_text(WATCHED)
    (tmp_path / "broken_command.py").write_text("raise ImportError")
    entries = [CommandEntry(name, f"{name}_command:command", "") for name in ("watched", "broken")]
    group = LazyGroup(entries=entries)
    command = group.get_command(click.Context(group), "watched")
    assert command is not None
    assert command.help == "0 collections"
    assert gc.isenabled()
    with pytest.raises(ImportError):
        group.get_command(click.Context(group), "broken")
    assert gc.isenabled()
