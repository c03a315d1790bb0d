"""Documents that name files, commands or targets may not outlive them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from gantry_cli.main import cli
from gantry_lab.main import lab

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMANDS = [*DOCUMENTS, ROOT / "charts" / "gantry" / "README.md"]
ADRS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
ADR_LINES_MAX = 80
"""Of 100 columns (tests/unit/test_pages.py)."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def words_of_code(text: str) -> list[str]:
    """Inline code and the lines of code blocks."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [line.strip() for block in blocks for line in block.splitlines()] + inline


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    broken = [
        target
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_make_targets_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named = {
        match.group(1)
        for code in words_of_code(document.read_text(encoding="utf-8"))
        if (match := re.match(r"make ([a-z0-9-]+)", code))
    }
    assert named - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_commands_exist(document: Path) -> None:
    for line in words_of_code(document.read_text(encoding="utf-8")):
        code = line.removeprefix("$ ").replace("kubectl gantry ", "gantry kube ")
        named = re.match(r"(?:\S*bin/)?(gantry|python -m gantry_lab) ([a-z].*)", code)
        if named is None:
            continue
        command: click.Command | None = cli if named.group(1) == "gantry" else lab
        for word in named.group(2).split():
            if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z-]+", word):
                break
            command = command.get_command(click.Context(command), word)
            assert command is not None, code


@pytest.mark.parametrize("document", COMMANDS, ids=relative)
def test_options_exist(document: Path) -> None:
    """Of the commands in blocks, which people copy."""
    text = document.read_text(encoding="utf-8")
    for block in re.findall(r"```(?:sh|console|bash)\n(.*?)```", text, re.DOTALL):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            code = line.strip().removeprefix("$ ").replace("kubectl gantry ", "gantry kube ")
            if code.startswith("gantry ") and "…" not in code:
                parse(re.split(r" (?:[|;&]|&&|>+) ", code)[0])


def parse(code: str) -> None:
    """Raises click.UsageError: there is no such command, or it has no such option or argument."""
    words = shlex.split(code, comments=True)[1:]
    command: click.Command = cli
    context = click.Context(command)
    while True:
        _, words, _ = command.make_parser(context).parse_args(words)
        if not words or not isinstance(command, click.Group):
            break
        _, found, words = command.resolve_command(context, words)
        assert found is not None, code
        command, context = found, click.Context(found, parent=context)
    assert not words, f"{code}: {words} are too many"


@pytest.mark.parametrize("adr", ADRS, ids=relative)
def test_adr_is_one_screen_with_the_agreed_parts(adr: Path) -> None:
    text = adr.read_text(encoding="utf-8")
    assert text.count("\n") <= ADR_LINES_MAX
    assert text.startswith(f"# {adr.name[:4]} ")
    for part in ("**Status:**", "## Context", "## Decision", "## Consequences", "## Rejected"):
        assert part in text
    assert f"({adr.name})" in (adr.parent / "README.md").read_text(encoding="utf-8")


def test_every_test_in_the_table_of_upstream_exists() -> None:
    text = (ROOT / "docs" / "upstream-tests.md").read_text(encoding="utf-8")
    named: list[tuple[str, str]] = []
    for path, test in re.findall(r"`([\w./]*)::(\w+)`", text):
        named.append((path or named[-1][0], test))
    assert len(named) > 20
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not re.search(rf"def {test}\(", (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert missing == []
