"""YAML files to experiments; whatever is wrong ends in one sentence with file, document and field.

The rule protected here: nothing in a file is overlooked. Kinds, fields and values that are not
understood are errors, and so are keys given twice, of which YAML would silently take the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from gantry_chaos.errors import ManifestError
from gantry_chaos.manifests.model import API_VERSION
from gantry_chaos.manifests.workflow import OBJECTS, Experiment, Template, Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic_core import ErrorDetails

FILE_BYTES_MAX = 1 << 20
DOCUMENTS_MAX = 100


class _Loader(yaml.SafeLoader):
    """Refuses keys given twice and aliases; both hide what a manifest says."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(None, None, "a key is no string", key.start_mark)
            if key.value in seen:
                problem = f"the key {key.value} is given twice"
                raise yaml.MarkedYAMLError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read(path: Path) -> list[Experiment]:
    """All experiments of a file, or of the `.yaml` files of a directory, in order.

    Raises:
        ManifestError: a file is not what Chaos Mesh and this reader understand.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
        if not files:
            raise ManifestError(str(path), "", "the directory has no .yaml files")
        return [experiment for file in files for experiment in read(file)]
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
        if len(text) > FILE_BYTES_MAX:
            raise ManifestError(str(path), "", f"it is larger than {FILE_BYTES_MAX} bytes")
        return parse(text.decode(), str(path))
    except UnicodeDecodeError as error:
        raise ManifestError(str(path), "", f"it is not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise ManifestError(str(path), "", f"it cannot be read: {error.strerror}") from error


def parse(text: str, source: str) -> list[Experiment]:
    """All experiments of a text; `source` is what errors call it.

    Raises:
        ManifestError: see `read`.
    """
    found = [_experiment(document, where) for where, document in _documents(text, source)]
    if not found:
        raise ManifestError(source, "", "it holds no object")
    names = [(type(item).__name__, item.metadata.namespace, item.metadata.name) for item in found]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ManifestError(source, "metadata.name", f"{name[0]} {name[2]} is there twice")
    return found


def _documents(text: str, source: str) -> Iterator[tuple[str, object]]:
    number = 0
    try:
        for document in yaml.load_all(text, _Loader):
            number += 1
            if number > DOCUMENTS_MAX:
                raise ManifestError(source, "", f"it holds more than {DOCUMENTS_MAX} documents")
            if document is not None:
                yield f"{source}, document {number}", document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"it is not usable YAML{at}: {error.problem}"
        raise ManifestError(f"{source}, document {number + 1}", "", problem) from error
    except yaml.YAMLError as error:
        problem = f"it is not YAML: {' '.join(str(error).split())}"
        raise ManifestError(source, "", problem) from error
    except RecursionError as error:
        raise ManifestError(source, "", "it is nested too deeply") from error


def _experiment(document: object, where: str) -> Experiment:
    if not isinstance(document, dict):
        raise ManifestError(where, "", f"{type(document).__name__} where an object is expected")
    version, kind = document.get("apiVersion"), document.get("kind")
    if version != API_VERSION:
        raise ManifestError(where, "apiVersion", f"expected {API_VERSION}, got {version!r}")
    model = OBJECTS.get(kind) if isinstance(kind, str) else None
    if model is None:
        supported = ", ".join(OBJECTS)
        raise ManifestError(where, "kind", f"{kind!r} is not supported; supported: {supported}")
    try:
        experiment = model.model_validate(document)
    except ValidationError as error:
        details = error.errors()[0]
        raise ManifestError(where, _path(details), _problem(details)) from error
    experiment._where = where  # noqa: SLF001 -- known to its reader only
    if isinstance(experiment, Workflow):
        _check_workflow(experiment, where)
    return experiment


def _path(details: ErrorDetails) -> str:
    """`spec.templates[2].networkChaos.loss.loss`."""
    path = ""
    for part in details["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else part
    return path


def _problem(details: ErrorDetails) -> str:
    given = details.get("input")
    match details["type"]:
        case "extra_forbidden":
            return "this field is not supported"
        case "missing":
            return "this field is missing"
        case "literal_error":
            return f"{given!r} is not supported; use {details['ctx']['expected']}"
        case "value_error":
            return str(details["ctx"]["error"])
        case "string_pattern_mismatch":
            return f"{given!r} is no name: lower case letters, digits, '-' and '.' only"
        case kind if kind.endswith("_type"):
            wanted = {
                "model_type": "object",
                "dict_type": "object",
                "mapping_type": "object",
                "string_type": "string",
                "int_type": "whole number",
            }
            return f"expected {wanted.get(kind, kind.removesuffix('_type'))}, got {given!r}"
        case _:
            return f"{details['msg']}, got {given!r}"


def _check_workflow(workflow: Workflow, where: str) -> None:
    """References between templates: they exist, and no template contains itself."""
    templates: dict[str, Template] = {}
    for number, template in enumerate(workflow.spec.templates):
        if template.name in templates:
            path = f"spec.templates[{number}].name"
            raise ManifestError(where, path, f"there are two templates {template.name!r}")
        templates[template.name] = template
    for number, template in enumerate(workflow.spec.templates):
        for position, child in enumerate(template.children):
            if child not in templates:
                path = f"spec.templates[{number}].children[{position}]"
                raise ManifestError(where, path, f"there is no template {child!r}")
    if workflow.spec.entry not in templates:
        raise ManifestError(where, "spec.entry", f"there is no template {workflow.spec.entry!r}")
    circle = _circle(workflow.spec.entry, templates, ())
    if circle:
        raise ManifestError(where, "spec.templates", f"{' → '.join(circle)} goes in a circle")
    unused = sorted(templates.keys() - _reached(workflow.spec.entry, templates))
    if unused:
        raise ManifestError(where, "spec.templates", f"{', '.join(unused)} is never reached")


def _circle(name: str, templates: dict[str, Template], above: tuple[str, ...]) -> tuple[str, ...]:
    if name in above:
        return (*above[above.index(name) :], name)
    for child in templates[name].children:
        if circle := _circle(child, templates, (*above, name)):
            return circle
    return ()


def _reached(name: str, templates: dict[str, Template]) -> set[str]:
    reached, waiting = set[str](), [name]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += templates[name].children
    return reached
