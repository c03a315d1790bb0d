"""`replay` of steps: what it says of a bundle with those of controllers."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from gantry_broker.decisions.replay import REPLICA
from gantry_operator.support.bundle import Bundle, packed
from gantry_protocol.steps.files import written_file
from sim.mutants.planting import Edit, planted
from sim.raft.world import run_seed
from support.replay_bundle import replay_bundle
from support.replica_steps import BUGS, a_life, recorded_replicas
from support.replica_steps import file_of as replica_file
from support.replicas import Group
from support.steps_again import file_of, recorded_cores

VOTE_RULE = Edit(
    "gantry_controller.raft.election:may_vote_for",
    "return free and state.log.is_up_to_date(request.last_index, request.last_term)",
    "return True",
)


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    """One of each controller of a quorum that had a hard life."""
    with recorded_cores(1 << 20) as made:
        run_seed(5)
    return [file_of(ring, f"controller-{n}") for n, (_, ring) in enumerate(made)]


def bundle(path: Path, *files: bytes) -> Path:
    named = {f"raft/controller-{n}.jsonl": data for n, data in enumerate(files)}
    path.write_bytes(packed(Bundle({"README.md": b"x"} | named, (), (), ())))
    return path


def test_the_same_steps_are_the_same(files: list[bytes], tmp_path: Path) -> None:
    code, out = replay_bundle(bundle(tmp_path / "b.tar.gz", *files))
    assert code == 0
    lines = out.splitlines()
    steps = sum(data.count(b"\n[") for data in files)
    assert lines[-1] == (
        f"{steps} steps of {len(files)} controllers of version 0.1.0: {steps} the same, "
        "0 otherwise."
    )
    assert all(line.endswith(": the same") for line in lines[:-1])
    assert lines[0].startswith("2026-11-30T00:00:00+00:00 raft/controller-0.jsonl: steps ")
    assert replay_bundle(bundle(tmp_path / "c.tar.gz", *files), "--differences") == (
        0,
        lines[-1] + "\n",
    )


def test_a_bug_that_was_planted_since_is_named(files: list[bytes], tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.tar.gz", *files)
    with planted((VOTE_RULE,)):
        code, out = replay_bundle(path, "--differences")
        code_json, out_json = replay_bundle(path, "--differences", "-o", "json")
    assert (code, code_json) == (1, 1)
    first = out.splitlines()[1]
    assert first.startswith("  differs at step ")
    assert "(step VoteRequest of node " in first or "(ready)" in first
    assert "granted" in out
    found = json.loads(out_json.splitlines()[0])
    assert found["process"].startswith("controller-")
    (difference,) = found["differences"]
    assert difference["number"] >= found["first"]
    assert ("recorded" in difference, "now" in difference) == (True, True)
    assert "not compared behind these." in out.splitlines()[-1]


def test_other_code_is_said_to_be_other(files: list[bytes], tmp_path: Path) -> None:
    start = files[0].index(b'"code":"') + 8
    other = files[0][:start] + b"0123456789abcdef" + files[0][start + 16 :]
    code, out = replay_bundle(bundle(tmp_path / "b.tar.gz", other))
    assert code == 0
    assert "recorded by version 0.1.0 with other code of the core (0123456789abcdef, here " in out


def test_a_recording_that_had_ended_says_so(files: list[bytes], tmp_path: Path) -> None:
    ended = files[0].replace(b'"ended":""', b'"ended":"ValueError: x"', 1)
    code, out = replay_bundle(bundle(tmp_path / "b.tar.gz", ended))
    assert (code, "the recording had ended before: ValueError: x" in out) == (0, True)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_refused(
    files: list[bytes], tmp_path: Path, share: float
) -> None:
    code, says = replay_bundle(
        bundle(tmp_path / "b.tar.gz", files[0][: int(len(files[0]) * share)])
    )
    assert code == 2
    assert "raft/controller-0.jsonl" in says


def test_rotten_bytes_of_a_bundle_are_refused(files: list[bytes], tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.tar.gz", *files)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    code, says = replay_bundle(path)
    assert code == 2
    assert says.startswith(str(path))


def test_another_format_is_refused(files: list[bytes], tmp_path: Path) -> None:
    newer = files[0].replace(b'"format":1', b'"format":2', 1)
    code, says = replay_bundle(bundle(tmp_path / "b.tar.gz", newer))
    assert code == 2
    assert "raft/controller-0.jsonl has format 2, and this version reads 1" in says


def test_a_file_elsewhere_in_the_archive_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "gantry-report/logs/raft/controller-0.jsonl")
    code, says = replay_bundle(path)
    assert (code, "holds no decisions" in says) == (2, True)


# ---- brokers


@pytest.fixture(scope="module")
def replicas() -> bytes:
    """Of a broker with the cores of three groups, each of which had a hard life."""
    with recorded_replicas() as made:
        a_life(Group(3))
    return replica_file(*made)


def mixed(path: Path, raft: list[bytes], replica: bytes) -> Path:
    named = {f"raft/controller-{n}.jsonl": data for n, data in enumerate(raft)}
    named["replica/orders-0.jsonl"] = replica
    path.write_bytes(packed(Bundle({"README.md": b"x"} | named, (), (), ())))
    return path


def test_steps_of_brokers_are_taken_beside_those_of_controllers(
    files: list[bytes], replicas: bytes, tmp_path: Path
) -> None:
    path = mixed(tmp_path / "b.tar.gz", files[:1], replicas)
    code, out = replay_bundle(path)
    assert code == 0
    lines = out.splitlines()
    assert " steps of 1 controllers and 1 brokers of version 0.1.0: " in lines[-1]
    assert lines[-1].endswith(" the same, 0 otherwise.")
    assert any(" replica/orders-0.jsonl orders-1: steps 1 to " in line for line in lines)
    _, told = replay_bundle(path, "-o", "json")
    groups = {json.loads(line)["group"] for line in told.splitlines()}
    assert groups >= {"", "orders-0", "orders-1", "orders-2"}


def test_a_bug_of_a_replica_that_was_planted_since_is_named(
    files: list[bytes], replicas: bytes, tmp_path: Path
) -> None:
    path = mixed(tmp_path / "b.tar.gz", files[:1], replicas)
    where, old, new = BUGS["acknowledges what is flushed"]
    with planted((Edit(where, old, new),)):
        code, out = replay_bundle(path, "--differences")
    assert code == 1
    assert "replica/orders-0.jsonl orders-" in out.splitlines()[0]
    assert "Ack.flushed_end" in out.splitlines()[1]


def test_steps_of_another_core_than_their_folder_says_are_refused(
    replicas: bytes, tmp_path: Path
) -> None:
    path = bundle(tmp_path / "b.tar.gz", replicas)
    code, says = replay_bundle(path)
    assert (code, "raft/controller-0.jsonl holds steps of replica" in says) == (2, True)


def test_a_broker_that_records_nothing_says_why(tmp_path: Path) -> None:
    data = written_file(
        {}, REPLICA.plain, core="replica", process="b", version="0.1.0", code="x", note="too few"
    )
    code, out = replay_bundle(mixed(tmp_path / "b.tar.gz", [], data))
    assert (code, "replica/orders-0.jsonl: the recording had ended before: too few" in out) == (
        0,
        True,
    )
