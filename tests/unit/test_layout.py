"""The repository's layout, guarded: the rules that no linter knows.

`operator` is both a folder here and a module of the standard library, so a stray `__init__.py` in
a component folder breaks `python -m` and every process that is started from the root.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = ("protocol", "controller", "broker", "operator", "pipeline", "proxy", "cli")
DISTRIBUTIONS = ("local",)
"""Components that are built apart from the main wheel, each from a `pyproject.toml` of its own."""
WORKSHOP = ("chaos", "lab")
"""Components that never ship; the editable install of a checkout finds them."""
COMPONENTS = (*WHEEL, *DISTRIBUTIONS, *WORKSHOP)
PACKAGES = [ROOT / folder / f"gantry_{folder}" for folder in COMPONENTS]
TEST_FOLDERS = ("tests", "e2e")
MODULE_LINES_MAX = 600
README_LINES_MAX = 150
SAME_NAME_MAX = 2
SAME_NAMES = {
    "Append": "the one step of three logs: Raft's, a broker group's, a tier's",
    "Store": "of a broker group, of objects in a bucket, of the stand-in API server",
    "ConsumerGroup": "its sessions, its members in the quorum, and the resource of that kind",
    "Hello": "the first message of each protocol that begins with one",
}
"""Public classes that more modules may call the same, and why."""
HEADLESS = re.compile(r"(What|How|Whether|Who|Where|When|Why|Which)(ever)?\b")
"""Questions. Of functions, one that answers yes or no may begin with `Whether`."""


def modules() -> list[Path]:
    """Every Python file of a component."""
    return sorted(path for package in PACKAGES for path in package.rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("folder", COMPONENTS)
def test_component_folder_holds_its_package_and_nothing_else(folder: str) -> None:
    entries = {entry.name for entry in (ROOT / folder).iterdir()} - {"__pycache__"}
    described = {"pyproject.toml"} if folder in DISTRIBUTIONS else set()
    assert entries == {f"gantry_{folder}"} | described


def test_no_package_marker_under_the_test_folders() -> None:
    found = [
        relative(path) for folder in TEST_FOLDERS for path in (ROOT / folder).rglob("__init__.py")
    ]
    assert found == []


@pytest.mark.parametrize("module", ["operator", "platform", "calendar"])
def test_standard_library_is_found_from_the_root(module: str) -> None:
    """`-S`: before any `.pth` file of an editable install can have imported it."""
    script = f"import {module}; print({module}.__file__)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert ROOT not in Path(found).parents


class _Facts(NamedTuple):
    """What the tests below ask of a module, which is parsed once for all of them.

    Attributes:
        head: its docstring.
        classes: its public ones.
        headless: places of docstrings that begin with a question word.
    """

    head: str | None
    classes: list[str]
    headless: list[str]


@cache
def _facts(path: Path) -> _Facts:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    headless = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        head = ast.get_docstring(node) or ""
        asks = HEADLESS.match(head) and not node.name.startswith("_")
        if asks and (isinstance(node, ast.ClassDef) or not head.startswith("Whether")):
            headless.append(f"{relative(path)}:{node.lineno}: {head.splitlines()[0]}")
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [name for name in classes if not name.startswith("_")]
    return _Facts(ast.get_docstring(tree), public, headless)


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_module_fits_in_one_head_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= MODULE_LINES_MAX, f"{lines} lines: split it"
    if text.strip():
        head = _facts(path).head
        assert head, "the module docstring is missing"
        assert not HEADLESS.match(head), "begin with the thing itself, not with a question word"


def test_a_class_name_means_one_thing() -> None:
    """Two modules may share a name where their fields do; the third looks for a better one."""
    homes: dict[str, list[str]] = {}
    for path in modules():
        for name in _facts(path).classes:
            homes.setdefault(name, []).append(relative(path))
    crowded = {name: places for name, places in homes.items() if len(places) > SAME_NAME_MAX}
    assert crowded.keys() == SAME_NAMES.keys(), crowded


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_public_docstrings_begin_with_the_thing_itself(package: Path) -> None:
    assert [line for path in package.rglob("*.py") for line in _facts(path).headless] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_package_has_a_docstring_and_is_typed(package: Path) -> None:
    for init in package.rglob("__init__.py"):
        tree = ast.parse(init.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{relative(init)} has no docstring"
    assert (package / "py.typed").exists()


def test_the_wheels_hold_what_ships_and_nothing_else() -> None:
    shipped = []
    for folder in (ROOT, *(ROOT / name for name in DISTRIBUTIONS)):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        shipped += [folder / package for package in packages]
    wanted = [ROOT / folder / f"gantry_{folder}" for folder in (*WHEEL, *DISTRIBUTIONS)]
    assert sorted(shipped) == sorted(wanted)


@pytest.mark.parametrize("folder", DISTRIBUTIONS)
def test_distributions_have_one_version_and_ask_for_each_other_s(folder: str) -> None:
    def project(place: Path) -> dict[str, Any]:
        text = (place / "pyproject.toml").read_text(encoding="utf-8")
        return cast("dict[str, Any]", tomllib.loads(text)["project"])

    main, other = project(ROOT), project(ROOT / folder)
    assert other["version"] == main["version"]
    assert f"{other['name']}=={main['version']}" in main["optional-dependencies"][folder]
    ours = [one for one in other["dependencies"] if one.startswith("gantry")]
    assert len(ours) == 1
    assert ours[0].endswith(f"]=={main['version']}")


def project_texts() -> list[str]:
    """What every `pyproject.toml` says about dependencies."""
    texts = [(ROOT / "pyproject.toml").read_text(encoding="utf-8")]
    texts[0] = texts[0][texts[0].index("dependencies = [") : texts[0].index("[project.scripts]")]
    for folder in DISTRIBUTIONS:
        text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
        texts.append(text[text.index("dependencies = [") : text.index("[tool.")])
    return texts


def direct_dependencies() -> list[tuple[str, str]]:
    """Lines of pyproject.toml that name a dependency of a shipped extra, with their comments."""
    pattern = r'"([A-Za-z][\w.-]*(?:[<>=!~][^"]*)?)"[^#"\n]*(#.*)?$'
    found = [match for text in project_texts() for match in re.findall(pattern, text, re.MULTILINE)]
    return [(name, reason) for name, reason in found if not name.startswith("gantry")]


def test_dependencies_have_floors() -> None:
    found = direct_dependencies()
    assert {"click", "rich", "kopf"} <= {name.split(">")[0] for name, _ in found}
    assert [name for name, _ in found if ">=" not in name] == []


def test_runtime_dependencies_give_the_reason_for_their_floor() -> None:
    """Each is explained once, where it first appears; development tools need no reason."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    tools = text[text.index("dev = [") : text.index("[project.scripts]")]
    explained = {name.split(">")[0] for name, reason in direct_dependencies() if reason}
    everything = {name.split(">")[0] for name, _ in direct_dependencies()}
    unexplained = {name for name in everything - explained if f'"{name}' not in tools}
    assert unexplained == set()


def test_every_direct_dependency_is_pinned() -> None:
    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonical(line.split("==")[0]) for line in lines if "==" in line}
    loose = [line for line in lines if line and not line.startswith("#") and "==" not in line]
    assert loose == []
    named = {canonical(re.split(r"[<>=]", name)[0]) for name, _ in direct_dependencies()}
    assert named - pins == set()


def test_readme_is_short_enough_to_be_read() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").count("\n")
    assert 0 < lines <= README_LINES_MAX


def test_no_machine_or_registry_is_named() -> None:
    """A clone must work wherever it lands; only people's own settings may name a mirror."""
    files = [ROOT / "pyproject.toml", ROOT / "constraints.txt", ROOT / "Makefile"]
    files += [path for path in (ROOT / ".ci").iterdir() if path.is_file()]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://|index.url|find.links", text), relative(path)


def test_what_is_kept_of_a_connection_has_a_name_of_its_own() -> None:
    """Two owners of one name in ``Connection.attrs`` take each other's value for theirs."""
    named = re.compile(r'^(\w+) = "([^"]+)"  # in a connection\'s attrs', re.MULTILINE)
    found = [
        (name, relative(path)) for path in modules() for _, name in named.findall(path.read_text())
    ]
    assert len(found) >= 10
    assert len({name for name, _ in found}) == len(found), sorted(found)
