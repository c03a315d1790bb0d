"""Manifests: YAML files of objects, and the CRDs that come with this installation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from gantry_protocol.errors import ConfigError

Manifest = dict[str, Any]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same values, by libyaml if that is here: our CRDs take 0.1 s instead of a whole one."""


def read(source: str) -> list[Manifest]:
    """Objects of a file, of a directory's YAML files, or of standard input (``-``).

    Raises:
        ConfigError: naming the file and what is wrong with it.
    """
    if source == "-":
        return _parse(sys.stdin.read(), "standard input")
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"})
        if not files:
            raise ConfigError(f"The directory {path} has no .yaml files.")
        return [obj for file in files for obj in _read_file(file)]
    return _read_file(path)


def _read_file(path: Path) -> list[Manifest]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"The manifest {path} cannot be read: {why}.") from error
    return _parse(text, str(path))


def _parse(text: str, source: str) -> list[Manifest]:
    try:
        found = yaml.load_all(text, LOADER)
        documents = [document for document in found if document is not None]
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not YAML: {' '.join(str(error).split())}.") from error
    objects: list[Manifest] = []
    for document in documents:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            objects += document.get("items") or []
        else:
            objects.append(document)
    for obj in objects:
        _check(obj, source)
    if not objects:
        raise ConfigError(f"{source} holds no object.")
    return objects


def _check(obj: Any, source: str) -> None:
    if not isinstance(obj, dict):
        raise ConfigError(f"{source} holds {type(obj).__name__} where an object is expected.")
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            raise ConfigError(f"An object in {source} has no {field}.")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ConfigError(f"The {obj['kind']} in {source} has no metadata.name.")


def where(obj: Manifest, namespace: str) -> tuple[str, str]:
    """(name, namespace) of an object; ``namespace`` is for those that name none."""
    metadata = obj["metadata"]
    return metadata["name"], metadata.get("namespace") or namespace


def _shipped(folder: str) -> Path:
    """A folder of this installation: beside the package in a wheel, at the root of a checkout.

    Raises:
        ConfigError: neither place has it.
    """
    package = Path(__file__).resolve().parent
    for place in (package / folder, package.parent.parent / folder):
        if any(place.glob("*.yaml")):
            return place
    raise ConfigError(f"This installation has no {folder} beside {package}; install it again.")


def crds() -> list[Manifest]:
    """The CustomResourceDefinitions of this installation."""
    return read(str(_shipped("crds")))


def example() -> Path:
    """The BrokerGroup `orders` of this installation."""
    return _shipped("examples") / "brokergroup.yaml"
