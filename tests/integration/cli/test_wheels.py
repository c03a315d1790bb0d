"""What is shipped: the main wheel without the cluster of processes, and that one beside it.

Both wheels are built and installed where nothing of this checkout can be imported; the libraries
of others are the ones that the tests have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]


def run(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that knows nothing of this checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
    )


def must(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both wheels."""
    dist = tmp_path_factory.mktemp("dist")
    for source in (ROOT, ROOT / "local"):
        build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist)
        must(run(*build, cwd=source))
    return dist


def environment(directory: Path, dist: Path, requirement: str) -> Path:
    """A virtual environment with `requirement` installed, and all libraries that are not ours."""
    venv.create(directory, with_pip=False)
    where = {"base": str(directory), "platbase": str(directory)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=where))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("gantry", "_editable", "__pycache__")):
            (packages / entry.name).symlink_to(entry)
    program = directory / "bin" / "python"
    options = ("--quiet", "--no-index", "--find-links", dist, "--no-compile")
    pip = (sys.executable, "-m", "pip", "--python", program, "install", *options)
    must(run(*pip, requirement, cwd=directory))
    return directory / "bin" / "gantry"


@pytest.fixture(scope="module")
def without(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an installation without the cluster of processes."""
    return environment(tmp_path_factory.mktemp("without"), wheels, "gantry")


@pytest.fixture(scope="module")
def complete(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an installation with it."""
    return environment(tmp_path_factory.mktemp("complete"), wheels, "gantry[local]")


def names(dist: Path, pattern: str) -> set[str]:
    (wheel,) = dist.glob(pattern)
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_main_wheel_has_nothing_of_the_cluster_of_processes(wheels: Path) -> None:
    main, local = names(wheels, "gantry-[0-9]*.whl"), names(wheels, "gantry_local-*.whl")
    assert {"gantry_cli/main.py", "gantry_operator/server.py"} <= main
    assert [name for name in main if name.startswith("gantry_local")] == []
    assert {name.partition("/")[0] for name in local if ".dist-info/" not in name} == {
        "gantry_local"
    }


@pytest.mark.parametrize(
    ("args", "instead"),
    [
        (("local", "up"), ""),
        (("local", "--help"), ""),
        (("demo",), ""),
        (("topics", "list"), ", or give --nameserver"),
        (("status",), ", or give --controllers"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_one_sentence_says_how_to_get_it(
    without: Path, tmp_path: Path, args: tuple[str, ...], instead: str
) -> None:
    done = run(without, *args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gantry: The cluster of processes is not installed: pip install 'gantry[local]'"
        f"{instead}.\n"
    )


@pytest.fixture
def state(complete: Path, tmp_path: Path) -> Iterator[Path]:
    """A state directory whose cluster ends with the test."""
    directory = tmp_path / "state"
    yield directory
    must(run(complete, "local", "down", "--purge", cwd=tmp_path, GANTRY_LOCAL_DIR=str(directory)))


def test_a_group_serves_on_a_cluster_from_the_wheels(
    complete: Path, tmp_path: Path, state: Path
) -> None:
    def gantry(*args: str) -> subprocess.CompletedProcess[str]:
        return run(complete, *args, cwd=tmp_path, GANTRY_LOCAL_DIR=str(state))

    must(gantry("local", "up"))
    must(gantry("local", "apply", "-f", str(ROOT / "examples" / "brokergroup.yaml")))
    deadline = time.monotonic() + PATIENCE_S
    while gantry("produce", "t", "--count", "1").returncode != 0:
        assert time.monotonic() < deadline, gantry("status").stdout
    assert must(gantry("consume", "t", "--from", "earliest", "--count", "1"))


def test_the_example_of_the_demonstration_is_shipped(complete: Path, tmp_path: Path) -> None:
    script = "from gantry_local import manifests; print(manifests.example().read_text())"
    shipped = must(run(complete.parent / "python", "-P", "-c", script, cwd=tmp_path))
    assert shipped.rstrip() == (ROOT / "examples" / "brokergroup.yaml").read_text().rstrip()
