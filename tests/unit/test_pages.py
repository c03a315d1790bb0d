"""The pages under docs: components with their modules, rules with their tags, links, width."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMPONENTS = {
    name: ROOT / name / f"gantry_{name}"
    for name in (
        "protocol",
        "controller",
        "broker",
        "operator",
        "pipeline",
        "proxy",
        "cli",
        "local",
        "lab",
        "chaos",
    )
}
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
WRITTEN = [page for page in PAGES if page.name != "CHANGELOG.md"]
LISTED_LINES_MIN = 100
"""A module of so many lines stands on its component's page."""
COLUMNS_MAX = 100
TAG = re.compile(r"(?<![\w-])[A-Z]\d{1,2}(?![\w-])")
FOREIGN_TAGS = {"S3", "V1", "Z0"}
"""Amazon's store, a version of an API, the end of a regular expression."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def named_paths(text: str) -> set[str]:
    """Code spans that are a path: with a folder, or the name of a Python file."""
    return set(re.findall(r"`((?:\w[\w.-]*/)+[\w.-]*|\w+\.py)`", text))


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_module_of_some_size_is_on_its_components_page(component: str) -> None:
    named = named_paths(text_of(f"components/{component}.md"))
    modules = {
        str(path.relative_to(COMPONENTS[component]))
        for path in COMPONENTS[component].rglob("*.py")
        if path.read_text(encoding="utf-8").count("\n") >= LISTED_LINES_MIN
    }
    assert modules - named == set()


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_components_page_names_its_own_modules_once_and_nobody_elses(component: str) -> None:
    text = text_of(f"components/{component}.md")
    missing = {path for path in named_paths(text) if not (COMPONENTS[component] / path).exists()}
    assert missing - {f"{component}/gantry_{component}/"} == set()
    rooms = text[text.index("\n## ", text.index("## Rooms") + 1) :]
    modules = re.findall(r"`([\w/]+\.py)`", rooms)
    assert {module for module in modules if modules.count(module) > 1} == set()


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_package_has_a_room(component: str) -> None:
    text = text_of(f"components/{component}.md")
    rooms = {room.strip("[]") for room in re.findall(r"^\| (\[?\w+\]?)", text, re.MULTILINE)}
    packages = {init.parent.name for init in COMPONENTS[component].glob("*/__init__.py")}
    assert packages - rooms == set()


def test_the_architecture_leads_to_every_page_of_a_component() -> None:
    linked = set(re.findall(r"\(components/(\w+)\.md[)#]", text_of("architecture.md")))
    assert linked == {page.stem for page in (DOCS / "components").glob("*.md")}


def test_the_architecture_is_read_in_ten_minutes() -> None:
    words = len(re.findall(r"\w+", text_of("architecture.md")))
    assert words < 2500


@pytest.mark.parametrize("page", ["architecture.md", "components/tests.md"])
def test_every_file_that_a_map_names_exists(page: str) -> None:
    named = {
        path
        for path in named_paths(text_of(page))
        if path.split("/")[0] in {entry.name for entry in ROOT.iterdir()}
    }
    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", WRITTEN, ids=relative)
def test_links_to_a_heading_find_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    broken = [
        f"{target}#{anchor}"
        for target, anchor in links
        if "://" not in target
        and anchor not in anchors((page.parent / target).resolve() if target else page)
    ]
    assert broken == []


def rules() -> dict[str, list[str]]:
    """Tag to the cells of its row."""
    lines = re.findall(r"^\| ([A-Z]\d+) \| (.+) \|$", text_of("rules.md"), re.MULTILINE)
    assert len({tag for tag, _ in lines}) == len(lines), "a tag is defined twice"
    return {tag: cells.split(" | ") for tag, cells in lines}


@pytest.mark.parametrize("tag", rules())
def test_a_rule_names_what_enforces_and_what_states_it(tag: str) -> None:
    _, enforced, stated = rules()[tag]
    for path, symbols in re.findall(r"`([\w/]+\.py)`((?:[ ,]+`\w+`)*)", enforced):
        places = [place for place in (ROOT / path, COMPONENTS["broker"] / path) if place.exists()]
        assert places, path
        code = places[0].read_text(encoding="utf-8")
        assert [name for name in re.findall(r"\w+", symbols) if name not in code] == []
    for path, test in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", stated):
        code = (ROOT / "tests" / "unit" / path).read_text(encoding="utf-8")
        assert f"def {test}(" in code or not test, test
    assert enforced.count("`") >= 2 <= stated.count("`")


@pytest.mark.parametrize("place", [*COMPONENTS, "docs", "tests/sim"])
def test_every_tag_in_use_is_defined(place: str) -> None:
    """What has no sentence on docs/rules.md is said in words where it is meant."""
    paths = [path for path in (ROOT / place).rglob("*") if path.suffix in {".py", ".md"}]
    used = {
        tag: relative(path)
        for path in paths
        for tag in TAG.findall(without_others(path))
        if tag not in FOREIGN_TAGS
    }
    assert {tag: used[tag] for tag in used.keys() - rules().keys()} == {}
    assert paths


def without_others(path: Path) -> str:
    """A file's text but for what has tags of its own: nodes of a story, pictures of bytes."""
    if "raft" in path.parts and "sim" in path.parts:
        return ""
    return path.read_text(encoding="utf-8")


def prose(text: str) -> list[str]:
    """Lines but for code, tables and figures that a command writes."""
    text = re.sub(r"^ *(```+)\w*\n.*?^ *\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!-- \w+ figures: begin -->.*?figures: end -->", "", text, flags=re.DOTALL)
    return [line for line in text.splitlines() if not line.lstrip().startswith("|")]


@pytest.mark.parametrize("page", [*WRITTEN, ROOT / "charts" / "gantry" / "README.md"], ids=relative)
def test_prose_is_as_wide_as_code(page: Path) -> None:
    """But for one command, path or link that is longer and stands alone in its line."""
    lines = prose(page.read_text(encoding="utf-8"))
    alone = re.compile(r"\s*(`[^`]+`|\[[^\]]*\]\([^)]*\))[.,:;]?")
    assert [line for line in lines if len(line) > COLUMNS_MAX and not alone.fullmatch(line)] == []
