"""Settings and their layers."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import click
import pytest
from click.testing import CliRunner
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import Settings, load_settings, settings_options
from pydantic import Field, model_validator


class Mode(Enum):
    FAST = "fast"
    SAFE = "safe"


class Sample(Settings):
    name: str = Field(description="Name of the pod.")
    node_id: Annotated[int, Field(ge=1)] | None = Field(None, description="Id of the node.")
    raft_port: int = Field(9879, ge=1, le=65535, description="Port for peers.")
    data_dir: Path = Field(Path("/var/lib/gantry"), description="Where data lives.")
    verbose: bool = Field(False, description="Say more.")
    controllers: tuple[str, ...] = Field((), description="All controllers.")
    mode: Mode = Field(Mode.SAFE, description="How.")

    @model_validator(mode="after")
    def _names_are_short(self) -> "Sample":
        if len(self.name) > 10:
            raise ValueError("The name is longer than 10 letters")
        return self


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gantry.toml"
    path.write_text(text)
    return path


def test_flag_over_variable_over_file_over_default(tmp_path: Path) -> None:
    file = _file(tmp_path, 'name = "file"\nraft_port = 1\nnode_id = 1\nverbose = true\n')
    env = {"GANTRY_NAME": "env", "GANTRY_RAFT_PORT": "2", "GANTRY_CONFIG": str(file)}
    settings = load_settings(Sample, {"name": "flag", "raft_port": None}, env)
    assert settings == Sample(name="flag", raft_port=2, node_id=1, verbose=True)
    assert settings.data_dir == Path("/var/lib/gantry")


def test_a_fallback_gives_way_to_whatever_a_person_wrote(tmp_path: Path) -> None:
    env = {"GANTRY_NAME": "n", "GANTRY_FALLBACK_RAFT_PORT": "3", "GANTRY_FALLBACK_NODE_ID": "7"}
    assert load_settings(Sample, {}, env) == Sample(name="n", raft_port=3, node_id=7)
    file = {"GANTRY_CONFIG": str(_file(tmp_path, "raft_port = 1\n"))}
    assert load_settings(Sample, {}, env | file).raft_port == 1
    assert load_settings(Sample, {}, env | {"GANTRY_RAFT_PORT": "2"}).raft_port == 2
    assert load_settings(Sample, {"raft_port": 4}, env).raft_port == 4
    with pytest.raises(ConfigError, match=r"^GANTRY_FALLBACK_RAFT_PORT='0': .* greater than"):
        load_settings(Sample, {}, env | {"GANTRY_FALLBACK_RAFT_PORT": "0"})


def test_texts_become_what_the_field_is() -> None:
    env = {
        "GANTRY_NAME": "n",
        "GANTRY_CONTROLLERS": "a:1, b:2,",
        "GANTRY_VERBOSE": "true",
        "GANTRY_MODE": "fast",
        "GANTRY_NODE_ID": "",
    }
    settings = load_settings(Sample, {}, env)
    assert settings.controllers == ("a:1", "b:2")
    assert settings.verbose
    assert settings.mode is Mode.FAST
    assert settings.node_id is None


def test_one_file_may_hold_every_command(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        'name = "all"\n[controller]\nname = "mine"\n[broker]\nanything = 1\n',
    )
    assert load_settings(Sample, {}, {}, file, table="controller").name == "mine"
    assert load_settings(Sample, {}, {}, file, table="operator").name == "all"


@pytest.mark.parametrize(
    ("flags", "env", "text", "words"),
    [
        ({}, {}, "", "name is missing; give --name, GANTRY_NAME, or name in"),
        ({"name": "n", "raft_port": "0"}, {}, "", "--raft-port '0': input should be greater"),
        ({"name": "n"}, {"GANTRY_RAFT_PORT": "x"}, "", "GANTRY_RAFT_PORT='x': input should be"),
        ({"name": "n"}, {}, "raft_port = 'x'", "raft_port = 'x' in "),
        ({"name": "n"}, {}, "rraft_port = 1", "has the unknown key 'rraft_port'; known keys are"),
        ({"name": "n"}, {}, "[controler]\nx = 1", "unknown key 'controler'"),
        ({"name": "n"}, {}, "[controller]\nport = 1", "unknown key 'controller.port'"),
        ({"name": "n"}, {}, "controller = 1", "'controller' must be a table"),
        ({"name": "n"}, {}, "name = ", "is not TOML"),
        ({"name": "n" * 11}, {}, "", "The name is longer than 10 letters."),
    ],
)
def test_errors_name_what_the_person_wrote(
    tmp_path: Path, flags: dict[str, str], env: dict[str, str], text: str, words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_settings(Sample, flags, env, _file(tmp_path, text), table="controller")
    message = str(error.value)
    assert words in message
    assert message.endswith(".")
    assert "\n" not in message


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="/nowhere cannot be read: No such file"):
        load_settings(Sample, {"config": "/nowhere"}, {})


@click.command()
@settings_options(Sample)
def sample_command(**flags: object) -> None:
    click.echo(load_settings(Sample, flags, {}).model_dump_json())


def test_help_teaches_every_setting() -> None:
    text = " ".join(CliRunner().invoke(sample_command, ["--help"]).output.split())
    assert "--raft-port INTEGER Port for peers. [env: GANTRY_RAFT_PORT; default: 9879]" in text
    assert "--name TEXT Name of the pod. [env: GANTRY_NAME; required]" in text
    assert "--verbose / --no-verbose Say more. [env: GANTRY_VERBOSE; default: off]" in text
    assert "--controllers A,B,… All controllers. [env: GANTRY_CONTROLLERS]" in text
    assert "--mode fast|safe How. [env: GANTRY_MODE; default: safe]" in text
    assert "--config FILE" in text


def test_options_arrive_as_settings() -> None:
    result = CliRunner().invoke(
        sample_command, ["--name", "n", "--node-id", "3", "--no-verbose", "--controllers", "a,b"]
    )
    settings = Sample.model_validate_json(result.output)
    assert settings == Sample(name="n", node_id=3, controllers=("a", "b"))


def test_settings_are_frozen_and_know_their_names() -> None:
    settings = Sample(name="n")
    with pytest.raises(ValueError, match="frozen"):
        settings.name = "m"  # type: ignore[misc]  # that it is refused is the point
    with pytest.raises(ValueError, match="Extra inputs"):
        Sample.model_validate({"name": "n", "other": 1})
