"""The scripts around the test cluster: real shells and children, a program in place of Docker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

SCRIPTS = Path(__file__).resolve().parents[3] / "e2e" / "cluster"


class Place:
    """A cache directory of its own, whose programs are found first."""

    def __init__(self, directory: Path) -> None:
        self.cache = directory / "cluster"
        self.programs = self.cache / "bin"
        self.programs.mkdir(parents=True)
        self.env = os.environ | {"GANTRY_CACHE_DIR": str(directory)}

    def program(self, name: str, text: str) -> None:
        file = self.programs / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)

    def run(self, text: str, *, keep: tuple[int, ...] = ()) -> str:
        """Run this text with all functions of lib.sh; what it says on stderr."""
        done = subprocess.run(
            ["bash", "-c", f"source {SCRIPTS}/lib.sh\n{text}"],
            env=self.env,
            pass_fds=keep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_docker_gets_none_of_the_callers_open_files(place: Place) -> None:
    """Whoever reads a pipe to its end must not wait for as long as Docker runs."""
    up = place.cache / "up"
    place.program("docker", f"test -e {up}")
    place.program("dockerd", f'echo "says $1"; touch {up}; exec sleep 600')
    reading, writing = os.pipe()
    try:
        # The step's own output is a pipe too: `run` returns only at its end.
        place.run('step "start Docker" start_docker', keep=(writing,))
        pid = int((place.cache / "dockerd.pid").read_text())
        try:
            os.close(writing)
            os.set_blocking(reading, False)
            assert os.read(reading, 1) == b"", "nobody holds the other end"
            while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
                time.sleep(0.01)  # until then it is a shell, which has its script open
            descriptors = {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}
            assert descriptors == {0, 1, 2}
            assert os.getsid(pid) == pid, "a session of its own"
            assert (place.cache / "log" / "dockerd.log").read_text() == "says \n"
        finally:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(reading)


def test_a_step_tells_how_far_it_is(place: Place) -> None:
    told = place.cache / "told"
    place.run(
        f"""
        exec 2>{told}
        plan "build kind v1" "build kubelet v1" "load gantry:dev"
        step "build kind v1" true
        until_told() {{ until (($(grep -c kubelet {told}) >= 3)); do sleep 0.1; done; }}
        TOLD_EVERY_S=1 step "build kubelet v1" until_told
        step "unplanned" true
        step "load gantry:dev" true
        """
    )
    lines = told.read_text().splitlines()
    kubelet = [line for line in lines if "kubelet" in line]
    assert lines[0].startswith("  [1/3] build kind v1 ")
    for line in kubelet[:-1]:
        assert line.startswith("  [2/3] build kubelet v1 ")
        assert re.search(r" s of about [0-9]+ s; about [0-9]+ (s|min) left$", line), line
    assert "left" not in kubelet[-1]
    ended = [line for line in lines if " of about " not in line]  # others tell of the way
    assert ended[-2].startswith("  [3/4] unplanned")
    assert ended[-1].startswith("  [4/4] load gantry:dev")


def test_a_step_that_fails_shows_its_end_and_ends_the_script(place: Place) -> None:
    script = f"source {SCRIPTS}/lib.sh\nstep break sh -c 'echo because; exit 3'\necho after"
    done = subprocess.run(
        ["bash", "-c", script], env=place.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "failed after" in done.stderr
    assert "because" in done.stderr
    assert done.stdout == ""


def ahead(place: Place, *images: str) -> list[str]:
    done = subprocess.run(
        [str(SCRIPTS / "ahead.sh"), *images],
        env=place.env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_what_is_there_is_not_ahead(place: Place) -> None:
    place.program("docker", "exit 1")
    place.program("kind", "exit 0")
    nothing = ahead(place, "gantry:dev", "gantry-test/store:moto")
    assert nothing[0].startswith("build kind ")
    assert [name for name in nothing if name.startswith("build kubelet ")]
    assert nothing[-4:] == [
        *("build gantry:dev", "load gantry:dev"),
        *("build gantry-test/store:moto", "load gantry-test/store:moto"),
    ]
    place.program("docker", "exit 0")
    place.program("kind", "echo gantry")
    warm = ahead(place, "gantry:dev", "gantry-test/store:moto")
    assert "create cluster" not in warm
    assert not [name for name in warm if name.startswith(("build kubelet", "node image"))]
    assert warm[-2:] == ["build gantry:dev", "load gantry:dev"]
