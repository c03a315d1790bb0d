"""Settings in layers: flag over ``GANTRY_*`` variable over TOML file over fallback over default.

A process's settings are one frozen pydantic model. Its fields give everything else: the field
``raft_port`` is the flag ``--raft-port``, the variable ``GANTRY_RAFT_PORT`` and the file key
``raft_port``; its description and default are the help text. A wrong value is reported by the name
the person used for it. Unknown file keys are refused, since a typing error must not pass as a
default; unknown variables are not, since other programs share the environment. A fallback
(``GANTRY_FALLBACK_RAFT_PORT``) is another default that an environment has for all its processes,
as a cluster on one machine does: whatever a person writes anywhere wins over it.
"""

import hashlib
import os
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import click
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from gantry_protocol.errors import ConfigError

VARIABLE_PREFIX = "GANTRY_"
FALLBACK_PREFIX = "GANTRY_FALLBACK_"
CONFIG_VARIABLE = "GANTRY_CONFIG"
CONFIG_FLAG = "--config"
# One file may serve all commands.
TABLES = frozenset({"controller", "broker", "door", "operator", "local"})

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
SettingsT = TypeVar("SettingsT", bound="Settings")


class Settings(BaseModel):
    """Base of every settings model: frozen, and unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def flag_name(field: str) -> str:
    """``raft_port`` → ``--raft-port``."""
    return "--" + field.replace("_", "-")


def variable_name(field: str) -> str:
    """``raft_port`` → ``GANTRY_RAFT_PORT``."""
    return VARIABLE_PREFIX + field.upper()


def fallback_name(field: str) -> str:
    """``raft_port`` → ``GANTRY_FALLBACK_RAFT_PORT``."""
    return FALLBACK_PREFIX + field.upper()


def settings_options(model: type[Settings]) -> Callable[[CommandT], CommandT]:
    """A decorator that gives a click command one option per field of ``model``, and ``--config``.

    The command receives each option under its field's name, None when it was not given, and
    ``config``; it hands all of them to :func:`load_settings` as ``flags``.
    """
    options = [_option(name, info) for name, info in model.model_fields.items()]
    options.append(
        click.option(
            CONFIG_FLAG,
            "config",
            metavar="FILE",
            help=f"TOML file with settings; flags and variables win. [env: {CONFIG_VARIABLE}]",
        )
    )

    def decorate(command: CommandT) -> CommandT:
        for option in reversed(options):  # decorators apply from the inside out
            command = option(command)
        return command

    return decorate


def load_settings(
    model: type[SettingsT],
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    toml_path: Path | str | None = None,
    *,
    table: str | None = None,
    otherwise: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda given: {},
) -> SettingsT:
    """The settings of this process.

    Args:
        model: what settings there are.
        flags: option values by field name, None for those not given; ``config`` names the file.
        env: the environment; None is this process's. An empty variable counts as not set.
        toml_path: the file, if neither ``--config`` nor ``GANTRY_CONFIG`` names one.
        table: the file's table that belongs to this command; its keys win over top-level ones,
            and other commands' tables are ignored.
        otherwise: what holds instead of the model's defaults, by what was given.

    Raises:
        ConfigError: one sentence naming the flag, the variable or the file key.
    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    environment = os.environ if env is None else env
    given.pop("config", None)
    file = config_file(flags, environment) or toml_path
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}  # field → how the person named it
    _take_variables(model, environment, fallback_name, values, origins)
    for key, value, origin in _from_file(model, file, table) if file else ():
        values[key], origins[key] = value, origin
    _take_variables(model, environment, variable_name, values, origins)
    for key, value in given.items():
        values[key], origins[key] = value, f"{flag_name(key)} {value!r}"
    values = {**otherwise(values), **values}
    for key, info in model.model_fields.items():
        if _is_sequence(info.annotation) and isinstance(values.get(key), str):
            values[key] = [part.strip() for part in values[key].split(",") if part.strip()]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, origins)) from error


def config_file(
    flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> Path | None:
    """The configuration file that a flag or the environment names; None if neither does."""
    environment = os.environ if env is None else env
    named = (flags or {}).get("config") or environment.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def fingerprint(text: bytes) -> str:
    """A short hash of a configuration file, by which a process says what it has read."""
    return hashlib.sha256(text).hexdigest()[:16]


def _take_variables(
    model: type[Settings],
    environment: Mapping[str, str],
    name_of: Callable[[str], str],
    values: dict[str, Any],
    origins: dict[str, str],
) -> None:
    for key in model.model_fields:
        name = name_of(key)
        text = environment.get(name, "")
        if text:
            values[key], origins[key] = text, f"{name}={text!r}"


def _from_file(
    model: type[Settings], file: Path | str, table: str | None
) -> list[tuple[str, Any, str]]:
    try:
        document = tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {file} cannot be read: {error.strerror or error}."
        ) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigError(f"The configuration file {file} is not TOML: {error}.") from error
    own = document.pop(table, {}) if table is not None else {}
    if not isinstance(own, dict):
        raise ConfigError(f"In {file}, {table!r} must be a table of settings.")
    for name in TABLES & document.keys():
        if isinstance(document[name], dict):
            del document[name]
    found = []
    for prefix, keys in (("", document), (f"{table}.", own)):
        for key, value in keys.items():
            if key not in model.model_fields:
                raise ConfigError(
                    f"The configuration file {file} has the unknown key {prefix + key!r}; "
                    f"known keys are {', '.join(sorted(model.model_fields))}."
                )
            found.append((key, value, f"{prefix}{key} = {value!r} in {file}"))
    return found


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    """One sentence about the first problem, naming what the person wrote."""
    first = error.errors(include_url=False)[0]
    reason = first["msg"].removeprefix("Value error, ").removesuffix(".")
    if not first["loc"]:
        return f"{reason}."
    field = str(first["loc"][0])
    if first["type"] == "missing":
        return (
            f"The setting {field} is missing; give {flag_name(field)}, "
            f"{variable_name(field)}, or {field} in a configuration file."
        )
    if first["type"] == "extra_forbidden":
        return f"There is no setting {field!r}."
    return f"{origins.get(field, field)}: {reason[:1].lower()}{reason[1:]}."


def _option(name: str, info: FieldInfo) -> Callable[[CommandT], CommandT]:
    notes = [f"env: {variable_name(name)}"]
    if info.is_required():
        notes.append("required")
    else:
        default = info.get_default(call_default_factory=True, validated_data={})
        if default not in (None, "", (), []):
            notes.append(f"default: {_show(default)}")
    text = f"{info.description or ''} [{'; '.join(notes)}]".strip()
    if _plain(info.annotation) is bool:
        both = f"{flag_name(name)}/--no-{name.replace('_', '-')}"
        return click.option(both, name, default=None, help=text)
    return click.option(flag_name(name), name, default=None, metavar=_metavar(info), help=text)


def _plain(annotation: Any) -> Any:
    """``X`` for ``X | None``, anything else as it is."""
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not types.NoneType]
        if len(members) == 1:
            return members[0]
    return annotation


def _is_sequence(annotation: Any) -> bool:
    kind = get_origin(_plain(annotation)) or _plain(annotation)
    return kind in (list, tuple, set, frozenset, Sequence)


def _metavar(info: FieldInfo) -> str:
    kind = _plain(info.annotation)
    kind = getattr(kind, "__supertype__", kind)  # a NewType shows as what it is made of
    if _is_sequence(kind):
        return "A,B,…"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    return {int: "INTEGER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _show(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, list | tuple | set | frozenset):
        return ",".join(str(item) for item in default)
    return str(default)
