"""Who a volume belongs to, and the lineage beside it: both refuse what they cannot vouch for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_broker.control import identity as identities
from gantry_broker.control.identity import Identity
from gantry_broker.member import lineage_file
from gantry_broker.replica import Lineage, StoredState
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.replicas import lineage

IDENTITY = Identity("c", "g", "1.2.3.4:10911;17", BrokerId(3), None)
STATE = StoredState(Epoch(5), lineage((1, 0), (5, 900)), Offset(700))


def test_identity_round_trip(tmp_path: Path) -> None:
    assert identities.load(tmp_path) is None
    identities.save(tmp_path, IDENTITY)
    assert identities.load(tmp_path) == IDENTITY


def test_lineage_round_trip(tmp_path: Path) -> None:
    assert lineage_file.load(tmp_path) == StoredState(Epoch(0), Lineage(), Offset(0))
    lineage_file.save(tmp_path, STATE)
    assert lineage_file.load(tmp_path) == STATE


def test_a_volume_of_another_group_is_refused(tmp_path: Path) -> None:
    identities.check_group(tmp_path, IDENTITY, "c", "g")
    with pytest.raises(DataDirError, match=r"belongs to broker 3 of group c/g.*is of c/h"):
        identities.check_group(tmp_path, IDENTITY, "c", "h")


def _save_identity(directory: Path) -> Path:
    identities.save(directory, IDENTITY)
    return directory / identities.FILE


def _save_lineage(directory: Path) -> Path:
    lineage_file.save(directory, STATE)
    return directory / lineage_file.FILE


FILES = pytest.mark.parametrize(
    ("save", "load"),
    [(_save_identity, identities.load), (_save_lineage, lineage_file.load)],
    ids=["identity", "lineage"],
)


@FILES
def test_damage_is_refused_wherever_it_is(
    tmp_path: Path, save: Callable[[Path], Path], load: Callable[[Path], object]
) -> None:
    path = save(tmp_path)
    whole, honest = path.read_bytes(), load(tmp_path)
    for position in range(len(whole) - 1):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        path.write_bytes(bytes(damaged))
        try:
            found = load(tmp_path)
        except (CorruptionError, DataDirError) as error:
            assert str(path) in str(error)  # noqa: PT017 - some flips change nothing
        else:
            assert found == honest, "blanks between tokens mean nothing"


@FILES
@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_torn_file_is_refused(
    tmp_path: Path, save: Callable[[Path], Path], load: Callable[[Path], object], cut: int
) -> None:
    path = save(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptionError):
        load(tmp_path)


@FILES
def test_a_newer_format_is_left_alone(
    tmp_path: Path, save: Callable[[Path], Path], load: Callable[[Path], object]
) -> None:
    path = save(tmp_path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "format": 2}))
    with pytest.raises(DataDirError, match="has format 2, this version reads format 1"):
        load(tmp_path)


def test_a_lineage_that_no_history_can_have_is_refused(tmp_path: Path) -> None:
    state = lineage_file._State(5, 0, [(Epoch(5), Offset(9)), (Epoch(4), Offset(10))])
    sealed = lineage_file._Sealed(1, lineage_file._checksum(state), state)
    import msgspec

    (tmp_path / lineage_file.FILE).write_bytes(msgspec.json.encode(sealed))
    with pytest.raises(CorruptionError, match="cannot follow"):
        lineage_file.load(tmp_path)
