"""Settings of the processes as resources name them: fields of a spec, and keys of `spec.config`.

Rule protected: a setting is defined once, in `gantry_protocol.settings`. What a resource says of
it, range, default and text, is read from there, and a wrong key or value is told in `Accepted`, and
not by pods that end as soon as they start.

An image of another version may know others: an annotation of the resource switches the check of
`spec.config` off, and what the process then says of its settings is the word that counts.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from gantry_protocol.settings.broker import BrokerTuning, RetentionSettings, TierSettings
from gantry_protocol.settings.controller import ControllerTuning
from pydantic import Field, ValidationError

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_protocol.process.config import Settings
    from pydantic.fields import FieldInfo

    from gantry_operator.models.base import Metadata, Model

Definitions = dict[str, "FieldInfo"]

FIELDS: Final[Definitions] = TierSettings.model_fields | RetentionSettings.model_fields
"""Settings of a broker that are fields of the spec, by their path: `tier.packBytes` is
`tier_pack_bytes`."""
BROKER: Final[Definitions] = BrokerTuning.model_fields
CONTROLLER: Final[Definitions] = ControllerTuning.model_fields

_LIMITS = ("ge", "gt", "le", "min_length", "max_length")
_MIB = 1024 * 1024
_SHOWN_CHARS = 64


def field_of(setting: str, *, unset: str = "", **other: Any) -> Any:
    """The field of a resource that is this setting, with the range and text of its definition.

    Args:
        setting: its name, which is the field's path.
        unset: what it means that nothing is set, if that is no value.
        other: what differs in a resource: a narrower limit, another default or description.
    """
    info = FIELDS[setting]
    limits = {key: other.pop(key, limit) for key, limit in limits_of(info).items()}
    default = other.pop("default", info.default)
    text = f"{info.description} {_range(setting, limits, unset)}"
    optional = {"json_schema_extra": {"nullable": False}} if default is None else {}
    return Field(default, **{"description": text} | limits | optional | other)


def limits_of(info: FieldInfo) -> dict[str, Any]:
    """The limits of a setting, as `Field` names them."""
    return {
        key: limit
        for fact in info.metadata
        for key in _LIMITS
        if (limit := getattr(fact, key, None)) is not None
    }


def settings_of(part: Model, path: str) -> dict[str, str]:
    """Texts by setting of a part of a spec, as far as they are set and settings."""
    named = {f"{path}_{name}": getattr(part, name) for name in type(part).model_fields}
    return {
        name: _written(FIELDS[name], value)
        for name, value in named.items()
        if name in FIELDS and value is not None
    }


def _written(info: FieldInfo, value: object) -> str:
    """A choice is `Delete` in a resource and `delete` in files and variables."""
    return str(value).lower() if get_origin(info.annotation) is Literal else str(value)


def wrong_settings(meta: Metadata, settings: Mapping[str, str], model: type[Settings]) -> str:
    """One sentence per setting that the processes would refuse; empty if there is none."""
    if meta.annotations.get(names.ANNOTATION_UNCHECKED) == "true":
        return ""
    known = model.model_fields
    sentences = [_sentence(key, text, known) for key, text in sorted(settings.items())]
    return " ".join(filter(None, sentences)) or _refused(settings, model)


def _refused(settings: Mapping[str, str], model: type[Settings]) -> str:
    """Why a process would not start with settings that are right in kind and range."""
    try:
        model.model_validate(settings)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        return " ".join(_refusal(settings, fault["loc"], fault["msg"]) for fault in found)
    return ""


def _refusal(settings: Mapping[str, str], loc: tuple[int | str, ...], said: str) -> str:
    fault = said.removeprefix("Value error, ").removesuffix(".")
    fault = fault[:1].lower() + fault[1:]
    if not loc:
        return f"spec.config: {fault}; change one of them."
    key = str(loc[0])
    return f"spec.config.{key}: {fault} (got {_quoted(settings.get(key, ''))}); change it."


def _quoted(text: str) -> str:
    """A text in quotes, its end left out where it is long."""
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


def type_of(info: FieldInfo) -> type:
    """`int`, `float` or `str`."""
    kinds = {info.annotation, *get_args(info.annotation)}
    return next((kind for kind in (int, float) if kind in kinds), str)


def shown(value: object) -> str:
    """A number without an empty fraction; anything else as it is."""
    return f"{value:.15g}" if isinstance(value, int | float) else str(value)


def _range(setting: str, limits: Mapping[str, Any], unset: str) -> str:
    least, most = limits.get("ge"), limits.get("le")
    if most is not None:
        bounds = f"Range {shown(least)} to {shown(most)}; default"
    elif least is not None:
        bounds = f"At least {shown(least)}; default"
    else:
        bounds = "Default"
    if unset:
        return f"{bounds}: {unset}."
    default = FIELDS[setting].default
    mib = f" ({default // _MIB} MiB)" if setting.endswith("_bytes") else ""
    return f"{bounds} {shown(default)}{mib}."


def _sentence(key: str, text: str, known: Definitions) -> str:
    info = known.get(key)
    if info is not None:
        fault = _fault(info, text)
        if not fault:
            return ""
        return f"spec.config.{key}: {fault} (got {_quoted(text)}); change it."
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}."
    return (
        f"spec.config.{key}: there is no such setting; {hint} If the image is of another version "
        f"that has it, annotate this resource with {names.ANNOTATION_UNCHECKED}=true."
    )


def _fault(info: FieldInfo, text: str) -> str:
    """What is wrong with a value; empty if nothing is."""
    limits, kind = limits_of(info), type_of(info)
    if kind is str:
        most = limits.get("max_length")
        if most is not None and len(text) > most:
            return f"at most {most} characters are possible"
        form = next((made for fact in info.metadata if (made := getattr(fact, "pattern", ""))), "")
        return f"a text of the form {form} is needed" if not re.match(form, text) else ""
    try:
        number = kind(text)
    except ValueError:
        return "a whole number is needed" if kind is int else "a number is needed"
    if "ge" in limits and not number >= limits["ge"]:
        return f"at least {shown(limits['ge'])} is needed"
    if "gt" in limits and not number > limits["gt"]:
        return f"more than {shown(limits['gt'])} is needed"
    if "le" in limits and not number <= limits["le"]:
        return f"at most {shown(limits['le'])} is possible"
    return ""
