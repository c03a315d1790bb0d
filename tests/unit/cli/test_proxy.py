"""`gantry proxy`: which cluster it is to serve; how it serves, ``interop`` has clients judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from gantry_cli.commands import proxy
from gantry_cli.main import cli
from gantry_cli.target import LocalQuorum
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.live_settings import SettingsFile
from gantry_proxy import ProxySettings


def refusal(*args: str, local_dir: Path) -> str:
    asked = CliRunner().invoke(cli, ["proxy", *args], env={"GANTRY_LOCAL_DIR": str(local_dir)})
    assert asked.exit_code != 0
    return asked.output + str(asked.exception if isinstance(asked.exception, ConfigError) else "")


def test_a_local_cluster_that_does_not_run_is_named(tmp_path: Path) -> None:
    told = refusal("--local", local_dir=tmp_path / "none")
    assert f"No cluster runs in {tmp_path / 'none'}; start one with gantry local up" in told


def test_one_proxy_serves_one_cluster(tmp_path: Path) -> None:
    told = refusal("--local", "--nameserver", "10.0.0.1:9876", local_dir=tmp_path)
    assert "--local and --nameserver name two clusters; give one of them." in told


@pytest.mark.parametrize(
    ("given", "controllers", "key", "user"),
    [
        ({}, ["a:9878", "b:9878"], "local-key", None),
        ({"GANTRY_QUORUM_KEY_FILE": "mine"}, ["a:9878", "b:9878"], "mine", None),
        ({"GANTRY_CONTROLLERS": "c:1"}, ["c:1"], "local-key", None),
        ({"GANTRY_ACCESS_KEY": "shop", "GANTRY_SECRET_KEY_FILE": "s"}, [], None, "shop"),
    ],
)
def test_the_local_cluster_says_what_was_not_given(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    given: dict[str, str],
    controllers: list[str],
    key: str | None,
    user: str | None,
) -> None:
    """Who judges: the cluster's own key and controllers, unless all clients are to be one user."""

    async def found() -> LocalQuorum:
        return LocalQuorum(("n:9876",), ("a:9878", "b:9878"), Path("local-key"))

    async def serve(
        settings: ProxySettings, stop: object, file: SettingsFile[ProxySettings]
    ) -> None:
        served.append(settings)
        read = file.read("")
        assert read is not None
        assert read.wished == settings, "it is read again as at the start"

    served: list[ProxySettings] = []
    monkeypatch.setattr(proxy, "local_quorum", found)
    monkeypatch.setattr(proxy, "serve", serve)
    monkeypatch.delenv("GANTRY_QUORUM_KEY_FILE", raising=False)
    file = tmp_path / "proxy.toml"
    file.write_text("")
    command = ["proxy", "--local", "--config", str(file)]
    asked = CliRunner().invoke(cli, command, env=given, catch_exceptions=False)
    assert asked.exit_code == 0, asked.output
    (settings,) = served
    assert settings.nameserver == ["n:9876"]
    assert (settings.controllers, settings.access_key) == (controllers, user)
    assert settings.quorum_key_file == (Path(key) if key else None)
