"""The chart as Helm renders it, without a cluster: what every other package is made from.

Nothing here knows what the chart holds, so that no package can say something else than it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "gantry"
RELEASE = "gantry"
NAMESPACE = "gantry"
MARK = "xnamespacex"
"""A namespace whose name is part of nothing else in the chart, so that each mention is found."""
_HELM_S = 60.0

Manifest = dict[str, Any]
Files = Mapping[str, str]
"""The texts of a package's files, by their paths inside it."""


class PackageError(Exception):
    """A package cannot be made; the text says why and what to do."""


def version() -> str:
    """Gantry's version, which is also the chart's and that of its image."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def rendered(namespace: str, values: Mapping[str, Any] | None = None) -> str:
    """The objects of a release, without definitions and tests.

    Args:
        namespace: of the release.
        values: those that differ from the chart's own, nested as there.

    Raises:
        PackageError: Helm is missing, refuses the values, or takes longer than a minute.
    """
    helm = shutil.which("helm")
    if helm is None:
        raise PackageError("helm is missing: install helm 3, or run e2e/cluster/binaries.sh tools")
    command = [helm, "template", RELEASE, str(CHART), "--namespace", namespace, "--no-hooks"]
    try:
        done = subprocess.run(  # noqa: S603  # no shell, and no word of a stranger
            [*command, "--values", "-"],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=_HELM_S,
        )
    except subprocess.TimeoutExpired as error:
        raise PackageError(f"helm template took longer than {_HELM_S:.0f} s: try again") from error
    if done.returncode:
        raise PackageError(f"helm does not render the chart: {done.stderr.strip()}")
    return done.stdout


def objects(text: str) -> list[Manifest]:
    """The objects of a text in YAML, in their order."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where it is there
    return [found for found in yaml.load_all(text, loader) if found]  # a safe one


class _Plain(yaml.SafeDumper):
    """No aliases, and texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


def in_yaml(found: Any) -> str:
    """An object as the text of its file, fields in their order."""
    return str(yaml.dump(found, Dumper=_Plain, sort_keys=False, width=100, allow_unicode=True))


def definitions() -> dict[str, str]:
    """The texts of the chart's CustomResourceDefinitions, by file name."""
    return {path.name: path.read_text("utf-8") for path in sorted(CHART.glob("crds/*.yaml"))}


def image_values(image: str) -> Mapping[str, Any]:
    """Values for an image of every component; none where it is empty.

    Raises:
        PackageError: it has no tag.
    """
    if not image:
        return {}
    repository, _, tag = image.rpartition(":")
    if not repository or "/" in tag:
        raise PackageError(f"IMAGE is {image} and has no tag: write it as repository:tag")
    return {"image": {"repository": repository, "tag": tag}}


def write(files: Files, folder: Path) -> None:
    """Write a package anew; a folder of an earlier one goes as a whole."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def make(folder: Path, files: Callable[[str], Files]) -> int:
    """Write a package and say so; 1 and a sentence if it cannot be made.

    Args:
        folder: where it goes; the last argument of the command line is its image.
        files: the package for an image.
    """
    try:
        write(files(sys.argv[1] if len(sys.argv) > 1 else ""), folder)
    except PackageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stderr.write(f"{folder}: made from charts/gantry {version()}\n")
    return 0
