"""A user without an account: what Spark's processes are told, and that nobody else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gantry_pipeline import nameless
from gantry_pipeline.nameless import NamelessUserError
from support.other_user import ASSIGNED


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: ASSIGNED.user)
    monkeypatch.setattr(os, "getgid", lambda: ASSIGNED.group)


@pytest.fixture
def libraries(tmp_path: Path) -> list[str]:
    """As Debian has it: below the folder of the machine's kind."""
    library = tmp_path / "lib" / "x86_64-linux-gnu" / nameless.LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    return [str(tmp_path / "none"), str(tmp_path / "lib")]


def test_who_has_a_name_is_left_alone(tmp_path: Path) -> None:
    assert nameless.variables(tmp_path, libraries=()) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nobody")
def test_who_has_none_gets_one(
    tmp_path: Path, libraries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/opt/agent.so")
    told = nameless.variables(tmp_path, libraries=libraries)
    assert told["LD_PRELOAD"] == f"{libraries[1]}/x86_64-linux-gnu/{nameless.LIBRARY} /opt/agent.so"
    passwd = Path(told["NSS_WRAPPER_PASSWD"]).read_text().strip().split(":")
    assert passwd[:4] == ["gantry", "x", "1000650000", "0"]
    assert passwd[5] == str(tmp_path), "a home that it can write"
    assert Path(told["NSS_WRAPPER_GROUP"]).read_text() == "gantry:x:0:\n"


@pytest.mark.usefixtures("nobody")
def test_without_the_library_it_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NamelessUserError, match="none for 1000650000: install libnss_wrapper"):
        nameless.variables(tmp_path, libraries=[str(tmp_path)])


@pytest.mark.usefixtures("nobody")
def test_it_lasts_as_long_as_the_session(
    tmp_path: Path, libraries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/opt/agent.so")
    monkeypatch.delenv("NSS_WRAPPER_PASSWD", raising=False)
    with nameless.named(tmp_path, libraries=libraries):
        assert nameless.LIBRARY in os.environ["LD_PRELOAD"]
        assert Path(os.environ["NSS_WRAPPER_PASSWD"]).exists()
    assert os.environ["LD_PRELOAD"] == "/opt/agent.so"
    assert "NSS_WRAPPER_PASSWD" not in os.environ
