"""`replay`: what it says of decisions that differ, and of files that are no bundle of decisions."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from gantry_operator.cache import Key
from gantry_operator.decisions.recorder import DecisionRing, written
from gantry_operator.plan import broker, broker_steps, plan
from gantry_operator.plan.members import ObservedGroup
from gantry_operator.support import replay as module
from gantry_operator.support.bundle import Bundle, packed
from support.decided_again import recorder
from support.replay_bundle import replay_bundle
from unit.operator.world import NEW, NOW, OLD, broker_world, pod, view

Json = dict[str, Any]
ORDERS = Key("BrokerGroup", "mq", "orders")


@pytest.fixture
def replayed() -> None:
    """Not here: what a planner with a bug decides, the right one does not."""


def outdated(*ordinals: int) -> tuple[Any, ...]:
    return tuple(pod(n, revision=OLD if n in ordinals else NEW) for n in range(3))


def roll() -> list[Any]:
    """A roll, step by step: what the operator sees before each."""
    second_leads = view(master_broker_id=2)
    return [
        broker_world(pods=outdated(0, 1, 2)),
        broker_world(pods=outdated(0, 1)),
        broker_world(pods=outdated(0)),
        broker_world(pods=outdated(0), known=second_leads),
        broker_world(pods=(*outdated(0, 1)[:2], pod(2, ready=False))),
    ]


def recorded(worlds: list[Any], key: Key = ORDERS) -> DecisionRing:
    ring = recorder()
    for number, seen in enumerate(worlds):
        ring.note(key, seen, bytes([number]), NOW, plan(seen, NOW))
    return ring


def file_of(ring: DecisionRing) -> Json:
    found: Json = json.loads(written(ring.of(None), version="0.1.0", dropped=0))
    return found


def bundle(path: Path, *files: Any) -> Path:
    """As `report` packs it; a file that is no bytes is JSON."""
    contents = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in files]
    named = {f"decisions/operator-{n}.json": data for n, data in enumerate(contents)}
    path.write_bytes(packed(Bundle({"README.md": b"x"} | named, (), (), ())))
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """What the right code decides about a roll."""
    return bundle(tmp_path / "good.tar.gz", file_of(recorded(roll())))


# What is decided


def test_decisions_that_are_the_same(good: Path) -> None:
    code, out = replay_bundle(good)
    *lines, last = out.splitlines()
    assert (code, last) == (0, "5 decisions of version 0.1.0: 5 the same, 0 otherwise.")
    assert lines[0].startswith("2026-11-21T12:00:00.000Z BrokerGroup mq/orders: ")
    deeds = [re.search(r"(DeletePod|Elect) [\w-]+", line) for line in lines]
    assert [deed and deed[0] for deed in deeds] == [
        "DeletePod orders-broker-2",
        "DeletePod orders-broker-1",
        "Elect 2",
        "DeletePod orders-broker-0",
        None,
    ]


def highest_first(candidate: Any) -> tuple[bool, int, int]:
    return candidate.well, len(candidate.led), candidate.pod.ordinal


def last_successor(group: ObservedGroup, **_: Any) -> Any:
    return group.view.members[-1]


BUGS: dict[str, tuple[Any, str, Any, dict[int, tuple[str, str]]]] = {
    "the order of a roll": (
        broker_steps._Candidate,
        "rank",
        property(highest_first),
        {0: ("DeletePod orders-broker-2", "DeletePod orders-broker-1")},
    ),
    "nobody waits for the pod that was replaced": (
        broker_steps,
        "_unwell_current_pod",
        lambda *_: "",
        {4: ("nothing", "DeletePod orders-broker-1")},
    ),
    "who is behind takes over": (
        ObservedGroup,
        "successor",
        last_successor,
        {2: ("Elect 2", "Elect 3")},
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_shown_by_the_decision_that_it_changes(
    good: Path, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    """The bundle is of the right code; it is made again by code with a bug."""
    where, name, planted, expected = BUGS[bug]
    monkeypatch.setattr(where, name, planted)
    code, out = replay_bundle(good, "-o", "json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    moves = {
        number: (one["recorded"], one["now"])
        for number, outcome in enumerate(found)
        for one in outcome["differences"]
        if re.fullmatch(r"actions\[\d+\]", one["path"]) and "CheckAgain" not in one["now"]
    }
    assert moves == expected
    _, text = replay_bundle(good, "--differences")
    *lines, last = text.splitlines()
    assert last == "5 decisions of version 0.1.0: 4 the same, 1 otherwise."
    ((recorded, now),) = expected.values()
    assert any(
        line.startswith("  differs at actions[")
        and line.endswith(f"recorded {recorded}, now {now}")
        for line in lines
    )


def test_a_word_that_differs_is_shown_at_its_place(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "STEP_CHECK_S", 7.0)
    code, out = replay_bundle(good, "--differences")
    assert code == 1
    told = re.findall(r"^  differs at actions\[\d\]\.(.*)$", out, re.MULTILINE)
    assert told == ["CheckAgain.after_s: recorded 2.0, now 7.0"] * 5


def test_a_planner_that_fails_is_a_difference(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise KeyError("spec")

    monkeypatch.setattr(broker_steps, "_replace_next", failing)
    code, out = replay_bundle(good, "--differences")
    assert code == 1
    assert out.count("now fails with KeyError: 'spec'") == 4


# Files that are none


def test_a_file_that_is_cut_off(good: Path, tmp_path: Path) -> None:
    data = good.read_bytes()
    for length in (0, 1, 10, 100, len(data) // 2, len(data) - 9):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        code, text = replay_bundle(path)
        assert code == 2
        assert text.startswith(f"{path} is no whole bundle of kubectl gantry report: ") or (
            length == 0 and "holds no decisions" in text
        ), text
        assert text.count("\n") == 0


def changed(**fields: Any) -> Json:
    """A file with a decision of which something is different; `given` is put into it."""
    found = file_of(recorded(roll()[:1]))
    (one,) = found["decisions"]
    for name in fields.get("given") or ():
        one["parts"].pop(name, None)
    fields["given"] = fields.get("given") and one["given"] | fields["given"]
    found["decisions"] = [one | {name: part for name, part in fields.items() if part is not None}]
    return found


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (b"\0\1", "decisions/operator-0.json holds no decisions: "),
    "another format": ({"format": 2}, "has format 2, and this version reads 1"),
    "another shape": ({"format": 1, "decisions": 3}, "holds no decisions: "),
    "deep": (b'{"format":1,"a":' + b"[" * 100_000, "holds no decisions: "),
    "a class": ({"observation": "Popen"}, "knows no observation 'Popen'"),
    "a field": ({"given": {"shell": 1}}, "knows no field 'shell' of BrokerObserved"),
    "a time": ({"first": "yesterday"}, "'yesterday' is no time with a zone"),
    "a part": ({"parts": {"group": 10**6}}, "there is no part 1000000"),
    "a part before": ({"parts": {"group": -1}}, "there is no part -1"),
    "an object": ({"objects": {"Service": 0}}, "'Service' is no kind and name"),
    "a number": ({"given": {"image": 3}}, "3 is int, and str is needed"),
    "nothing": ({"given": {}, "parts": {}, "objects": {}}, "this is no BrokerObserved"),
    "many actions": ({"actions": [{}] * 2001}, "has more than 2000 actions"),
    "no list": ({"given": {"pods": {}}}, "{} is dict, and list is needed"),
    "a spec": (
        {"given": {"group": {"metadata": {"name": "x"}, "spec": {"replicas": 10**9}}}},
        "this is no BrokerGroup: spec.replicas: Input should be less than or equal to ",
    ),
    "an answer": ({"given": {"view": {"QuorumView": {}}}}, "'QuorumView' is none of GroupView"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_of_another_hand_is_refused_in_a_sentence(tmp_path: Path, what: str) -> None:
    data, said = BAD[what]
    if isinstance(data, dict) and "format" not in data:
        data = changed(**data)
    code, text = replay_bundle(bundle(tmp_path / "bad.tar.gz", data))
    assert (code, text.count("\n")) == (2, 0)
    assert said in text


def test_an_archive_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(bytes(3_000_000)))
    monkeypatch.setattr(module, "UNPACKED_MAX", 1_000_000)
    code, text = replay_bundle(bundle(path, b" " * 3_000_000))
    assert (code, text) == (2, f"{path}: it unpacks to more than 1000000 bytes.")
    monkeypatch.undo()
    monkeypatch.setattr(module, "FILE_BYTES_MAX", 1000)
    code, text = replay_bundle(path)
    assert (code, text) == (2, f"{path}: operator-0.json has more than 1000 bytes.")
    monkeypatch.setattr(module, "FILES_MAX", 1)
    code, text = replay_bundle(path)
    assert (code, text) == (2, f"{path}: it has more than 1 files.")


def test_names_and_links_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, kind, target in (
            ("gantry-report/decisions/a.json", tarfile.SYMTYPE, "/etc/passwd"),
            ("gantry-report/decisions/b.json", tarfile.LNKTYPE, "/etc/passwd"),
            ("../decisions/\x1b[2J.json", tarfile.REGTYPE, ""),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    path = tmp_path / "links.tar.gz"
    path.write_bytes(out.getvalue())
    code, text = replay_bundle(path)
    assert (code, "\x1b" in text) == (2, False)
    assert "decisions/??2J.json holds no decisions" in text


def test_nothing_of_a_bundle_commands_a_terminal(tmp_path: Path) -> None:
    found = file_of(recorded(roll()[:1]))
    found["decisions"][0] |= {"name": "x\x1b[2J", "failure": "\x1b]0;x\x07"}
    code, out = replay_bundle(bundle(tmp_path / "x.tar.gz", found))
    assert (code, "\x1b" in out, "\x07" in out) == (1, False, False)


@pytest.mark.parametrize(
    "actions",
    [
        [{}, {"A": 1}, {"A": {}, "B": {}}, {"A": []}],
        [{"ApplyObject": {"manifest": {"metadata": "x"}}}, {"ApplyObject": {"manifest": {}}}],
        [{"DeletePod": {"name": ["x"] * 1000}}, {"X" * 10_000: {}}],
        [{"WriteStatus": {"status": {"summary": {"a": 1}}}}, {"CheckAgain": {"after_s": None}}],
    ],
    ids=["forms", "manifests", "long", "status"],
)
def test_actions_that_nobody_plans_are_differences(tmp_path: Path, actions: list[Json]) -> None:
    code, out = replay_bundle(bundle(tmp_path / "x.tar.gz", changed(actions=actions)))
    assert code == 1
    assert max(map(len, out.splitlines())) < 1000


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    code, text = replay_bundle(tmp_path / "none.tar.gz")
    assert (code, text) == (2, f"{tmp_path}/none.tar.gz cannot be read: No such file or directory.")
