"""`gantry proxy`: which cluster it is to serve; how it serves, ``interop`` has clients judge."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from gantry_cli.main import cli
from gantry_protocol.errors import ConfigError


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
