"""The chart as a Kustomize base with two overlays: ``python -m gantry_lab.packages.kustomize``.

The base is what Helm renders with the chart's own values. An overlay is copied by whoever uses it,
and its ``namespace`` set: Kustomize's transformer knows where Kubernetes keeps namespaces, and the
overlay's replacements say where else the release's one is written. Both are found by comparing
renderings, so that a template that changes needs nothing here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_lab.packages.rendered import (
    MARK,
    NAMESPACE,
    Files,
    Manifest,
    PackageError,
    definitions,
    image_values,
    in_yaml,
    make,
    objects,
    rendered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path("build/kustomize")
OVERLAYS: Mapping[str, Mapping[str, Any]] = {
    "one-namespace": {},
    "all-namespaces": {"operator": {"allNamespaces": True}},
}
"""The chart's values of each."""
_HEAD = "# Made from charts/gantry by `make kustomize`; change the chart instead.\n"
_COPY = "# Copy this folder, and write your namespace below: it has to exist.\n"


class _Key(NamedTuple):
    """What tells the objects of a release apart; they are in one namespace."""

    api: str
    kind: str
    name: str


def package(image: str = "") -> Files:
    """Base and overlays.

    Args:
        image: of every component, with its tag; the chart's where it is empty.

    Raises:
        PackageError: Helm does not render the chart, or Kustomize could not express what it does.
    """
    given = image_values(image)
    files = {f"base/crds/{name}": text for name, text in definitions().items()}
    base = rendered(NAMESPACE, given)
    files["base/gantry.yaml"] = _HEAD + base
    files["base/kustomization.yaml"] = _HEAD + _kustomization(
        resources=[*(f"crds/{name}" for name in definitions()), "gantry.yaml"]
    )
    for name, values in OVERLAYS.items():
        wished, marked = (
            objects(rendered(namespace, {**given, **values})) for namespace in (NAMESPACE, MARK)
        )
        parts = overlay(objects(base), wished, marked)
        files |= {f"overlays/{name}/{part}": text for part, text in parts.items()}
    return files


def overlay(base: list[Manifest], wished: list[Manifest], marked: list[Manifest]) -> Files:
    """The files of an overlay, which makes one rendering of the other.

    Args:
        base: the objects of the base.
        wished: those that the overlay makes of them.
        marked: the same in the namespace `MARK`.

    Raises:
        PackageError: a template writes the namespace where Kustomize cannot.
    """
    added, patches = _difference(base, wished)
    resources = ["../../base", *(["added.yaml"] if added else [])]
    text = _kustomization(
        namespace=NAMESPACE,
        resources=resources,
        patches=patches,
        replacements=_replacements(marked),
    )
    files = {"kustomization.yaml": _HEAD + _COPY + text}
    if added:
        files["added.yaml"] = _HEAD + "---\n".join(map(in_yaml, added))
    return files


def _kustomization(**parts: Any) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return in_yaml(head | {key: value for key, value in parts.items() if value})


def _key(manifest: Manifest) -> _Key:
    return _Key(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"])


def _difference(
    base: list[Manifest], wished: list[Manifest]
) -> tuple[list[Manifest], list[Manifest]]:
    """Objects that an overlay adds to the base, and its patches of the others."""
    have, want = ({_key(found): found for found in side} for side in (base, wished))
    patches: list[Manifest] = []
    for key, found in have.items():
        target = {"kind": key.kind, "name": key.name}
        if key not in want:
            gone = {"apiVersion": key.api, "kind": key.kind, "metadata": {"name": key.name}}
            patches.append({"target": target, "patch": in_yaml({"$patch": "delete"} | gone)})
        elif changes := list(steps(found, want[key])):
            patches.append({"target": target, "patch": in_yaml(changes)})
    return [found for key, found in want.items() if key not in have], patches


def steps(old: Any, new: Any, path: str = "") -> Iterator[Manifest]:
    """A JSON patch from one object to another."""
    if isinstance(old, list) and isinstance(new, list):
        gone = _gone(old, new)
        if gone is not None:
            yield from ({"op": "remove", "path": f"{path}/{index}"} for index in reversed(gone))
            return
        if len(old) == len(new):
            for index, (before, after) in enumerate(zip(old, new, strict=True)):
                yield from steps(before, after, f"{path}/{index}")
            return
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield {"op": "replace", "path": path, "value": new}
        return
    for key in sorted(old.keys() | new.keys()):
        place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield {"op": "remove", "path": place}
        elif key not in old:
            yield {"op": "add", "path": place, "value": new[key]}
        else:
            yield from steps(old[key], new[key], place)


def _gone(old: list[Any], new: list[Any]) -> list[int] | None:
    """Indexes of the items without which a list is another; None if more than that differs."""
    rest, gone = list(new), []
    for index, item in enumerate(old):
        if rest and item == rest[0]:
            rest.pop(0)
        else:
            gone.append(index)
    return None if rest else gone


def _replacements(marked: list[Manifest]) -> list[Manifest]:
    """How the namespace and the image get to where Kustomize does not write them.

    Args:
        marked: the objects of a release in the namespace `MARK`.
    """
    (account,) = (found for found in marked if found["kind"] == "ServiceAccount")
    source = {
        "kind": "ServiceAccount",
        "name": account["metadata"]["name"],
        "fieldPath": "metadata.namespace",
    }
    targets: list[Manifest] = []
    for found in marked:
        select = {"kind": found["kind"], "name": _named(found["metadata"]["name"])}
        for path, text in _texts(found):
            if MARK not in text or _is_known(path):
                continue
            target: Manifest = {"select": select, "fieldPaths": [".".join(path)]}
            if text.startswith(f"{MARK}-"):
                target["options"] = {"delimiter": "-", "index": 0}
            elif text != MARK:
                raise PackageError(
                    f"{found['kind']} {select['name']} has the namespace inside {text!r}: "
                    "let the template write it alone, or first and before a hyphen"
                )
            targets.append(target)
    return [{"source": source, "targets": targets}, *_images(marked)]


def _images(marked: list[Manifest]) -> Iterator[Manifest]:
    """An image that is named twice: where a container runs it, and for whom that makes pods."""
    for found in marked:
        if found["kind"] != "Deployment":
            continue
        select = {"kind": "Deployment", "name": found["metadata"]["name"]}
        places: dict[str, list[str]] = {}
        for path, text in _texts(found):
            places.setdefault(text, []).append(".".join(path))
        for paths in places.values():
            runs = [path for path in paths if path.endswith(".image")]
            others = [path for path in paths if path not in runs]
            if runs and others:
                source = select | {"fieldPath": runs[0]}
                yield {"source": source, "targets": [{"select": select, "fieldPaths": others}]}


def _named(name: str) -> str:
    """An object's name in the base's namespace."""
    return name.replace(MARK, NAMESPACE)


def _is_known(path: tuple[str, ...]) -> bool:
    """Whether Kustomize's own transformer writes a namespace there."""
    is_subject = len(path) == 3 and path[0] == "subjects" and path[-1] == "namespace"
    return path == ("metadata", "namespace") or is_subject


def _texts(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text of an object by its path, in Kustomize's words."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _texts(value, (*path, key))
    elif isinstance(part, list):
        for index, value in enumerate(part):
            # By its index: Kustomize takes [name=A] for every name that begins with A.
            yield from _texts(value, (*path, f"{index}"))
    elif isinstance(part, str):
        yield path, part


if __name__ == "__main__":
    sys.exit(make(FOLDER, package))
