"""The state directory, the journal, manifests and tables."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any

import pytest
from gantry_local import manifests
from gantry_local.apiserver import jsonpath, tables
from gantry_local.apiserver.kinds import builtin_types
from gantry_local.apiserver.store import Record, Store
from gantry_local.defaults import controller_group, operator_deployment
from gantry_local.journal import Journal
from gantry_local.kubelet.logs import Logs, tail
from gantry_local.runtime import readdress_services
from gantry_local.state import StateDir, claim_index
from gantry_protocol.errors import ConfigError, CorruptionError, DataDirError, LockHeldError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAPS = ("", "configmaps")


def put(store: Store, name: str, **data: str) -> None:
    store.put(MAPS, ("n", name), {"metadata": {"name": name, "uid": f"u-{name}"}, "data": data})


def reopened(path: Path) -> Store:
    store = Store()
    Journal(path).load(store)
    return store


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Path, Store]]:
    """A store that is written to a journal; reading it back needs no orderly close."""
    path, store = tmp_path / "j", Store()
    put(store, "early", x="0")
    journal = Journal(path)
    journal.follow(store)
    yield path, store
    journal.close()


def contents(store: Store) -> dict[str, Any]:
    return {record.key[1]: record.obj["data"] for record in store.records(MAPS)}


def test_a_journal_gives_back_what_was_written(followed: tuple[Path, Store]) -> None:
    path, store = followed
    put(store, "a", x="1")
    put(store, "b", x="2")
    put(store, "a", x="3")
    store.delete(MAPS, ("n", "b"))
    again = reopened(path)
    assert contents(again) == {"early": {"x": "0"}, "a": {"x": "3"}}
    assert again.revision == store.revision


def test_the_revision_survives_objects(tmp_path: Path) -> None:
    path, store = tmp_path / "j", Store()
    put(store, "a")
    store.delete(MAPS, ("n", "a"))
    journal = Journal(path)
    journal.follow(store)
    journal.close()
    assert reopened(path).revision == 2


def test_a_torn_last_line_is_cut(followed: tuple[Path, Store]) -> None:
    path, store = followed
    put(store, "a", x="1")
    put(store, "b", x="2")
    content = path.read_bytes()
    for cut in (1, 5, 20):
        path.write_bytes(content[:-cut])
        assert contents(reopened(path)) == {"early": {"x": "0"}, "a": {"x": "1"}}


def test_damage_in_the_middle_is_refused(followed: tuple[Path, Store]) -> None:
    path, store = followed
    put(store, "a", x="1")
    put(store, "b", x="2")
    content = bytearray(path.read_bytes())
    at = content.index(b'"x":"1"')
    content[at + 5 : at + 6] = b"9"
    path.write_bytes(content)
    with pytest.raises(CorruptionError) as refused:
        reopened(path)
    assert refused.value.offset == bytes(content).rindex(b"\n", 0, at) + 1


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    from gantry_local import journal

    path = tmp_path / "j"
    path.write_bytes(journal._line(b'{"journal":"gantry-local","format":99}'))
    with pytest.raises(DataDirError, match="start the version that wrote it"):
        reopened(path)


def test_events_and_endpoints_are_not_kept(followed: tuple[Path, Store]) -> None:
    path, store = followed
    store.put(("", "events"), ("n", "e"), {"metadata": {"name": "e", "uid": "e"}})
    assert list(reopened(path).resources()) == [MAPS]


def test_a_new_directory_becomes_a_cluster(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "new" / "one")
    first = state.open()
    assert len(first.token) > 20
    assert state.open() == first
    assert (state.path / "cluster.json").stat().st_mode & 0o077 == 0


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DataDirError, match=r"holds 'thesis.tex' and no cluster\.json"):
        StateDir(tmp_path).open()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"kind":"other","format":1,"token":"x"}',
        b'{"kind":"gantry-local","format":2,"token":"x"}',
    ],
    ids=["damaged", "other kind", "newer"],
)
def test_another_kind_or_format_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cluster.json").write_bytes(content)
    with pytest.raises(DataDirError, match=r"cluster\.json"):
        StateDir(tmp_path).open()


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    held = StateDir(tmp_path).lock()
    with pytest.raises(LockHeldError, match="gantry local down"):
        StateDir(tmp_path).lock()
    os.close(held)
    os.close(StateDir(tmp_path).lock())


def test_the_daemon_is_known_while_it_lives(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.daemon() is None
    state.announce("http://127.0.0.1:1")
    found = state.daemon()
    assert found is not None
    assert found.url == "http://127.0.0.1:1"
    text = (tmp_path / "daemon.json").read_text()
    (tmp_path / "daemon.json").write_text(text.replace(str(found.start_ticks), "1"))
    assert state.daemon() is None  # the pid now belongs to somebody else
    state.withdraw()
    assert state.daemon() is None


def test_two_clusters_never_share_an_index() -> None:
    first, one = claim_index(None)
    second, two = claim_index(first)
    assert first != second
    one.close()
    again, three = claim_index(first)
    assert again == first
    for claim in (two, three):
        claim.close()


def test_services_move_with_their_cluster() -> None:
    store = Store()
    for name, address in (("a", "127.78.3.7"), ("b", "None")):
        spec = {"clusterIP": address, "clusterIPs": [address]}
        store.put(
            ("", "services"), ("n", name), {"metadata": {"name": name, "uid": name}, "spec": spec}
        )
    readdress_services(store, "127.78.5.0/24")
    moved = {r.key[1]: r.obj["spec"]["clusterIP"] for r in store.records(("", "services"))}
    assert moved == {"a": "127.78.5.7", "b": "None"}


def test_logs_keep_two_runs_and_the_tail(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.begin("n", "p", "c").write_bytes(b"one\n")
    logs.begin("n", "p", "c").write_bytes(b"two\nthree\n")
    assert tail(logs.current("n", "p", "c"), 1) == b"three\n"
    assert tail(logs.current("n", "p", "c"), None) == b"two\nthree\n"
    assert tail(logs.previous("n", "p", "c"), None) == b"one\n"
    assert tail(logs.current("n", "p", "nope"), 5) == b""


def test_long_logs_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gantry_local.kubelet import logs as module

    monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    logs = Logs(tmp_path)
    path = logs.begin("n", "p", "c")
    with path.open("ab") as writer:
        writer.write(b"x" * 150 + b"newest")
        writer.flush()
        logs.trim()
        writer.write(b"after")
    assert path.read_bytes() == b"after"
    assert logs.previous("n", "p", "c").read_bytes().endswith(b"newest")


def test_manifests_of_a_file_and_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n---\n"
        "apiVersion: v1\nkind: BList\nitems: [{apiVersion: v1, kind: B, metadata: {name: b}}]\n"
    )
    (tmp_path / "notes.txt").write_text("no")
    found = manifests.read(str(tmp_path))
    assert [obj["kind"] for obj in found] == ["A", "B"]
    assert manifests.where(found[0], "d") == ("a", "d")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "holds list where an object is expected"),
        ("kind: A\nmetadata: {name: a}", "has no apiVersion"),
        ("apiVersion: v1\nkind: A", "has no metadata.name"),
        ("", "holds no object"),
    ],
)
def test_manifests_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        manifests.read(str(path))


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml cannot be read"):
        manifests.read(str(tmp_path / "nope.yaml"))


def test_this_installation_has_its_definitions() -> None:
    names = {crd["metadata"]["name"] for crd in manifests.crds()}
    assert names == {
        f"{plural}.mq.gantry.dev"
        for plural in (
            "brokergroups",
            "consumergroups",
            "controllergroups",
            "frontgroups",
            "messageusers",
            "topics",
        )
    }


def test_the_first_objects_are_valid(tmp_path: Path) -> None:
    from support.pretend_cluster import StandaloneServer

    server = StandaloneServer()
    for obj in (*manifests.crds(), controller_group(3)):
        server.apply(obj)
    deployment = operator_deployment(tmp_path / "kubeconfig", 1)
    deployment["metadata"]["namespace"] = "default"
    server.apply(deployment)


NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (125, "2m5s"),
        (180, "3m"),
        (900, "15m"),
        (7200, "120m"),
        (4 * 3600, "4h"),
        (72 * 3600, "3d"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    then = (NOW - dt.timedelta(seconds=seconds)).isoformat()
    assert tables.age(then, NOW) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.a", 1),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Nope')].status", None),
        (".nowhere.at.all", None),
        (".spec.a.b", None),
        (".spec[?(@.type=='Ready')]", None),
    ],
)
def test_json_paths(path: str, value: Any) -> None:
    obj = {"spec": {"a": 1}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert jsonpath.find(obj, jsonpath.parse(path)) == value


@pytest.mark.parametrize("path", ["spec", ".a[*]", ".a[0]", ".a[?(@.b>1)]", "..a", ".a['x-y']"])
def test_json_paths_outside_the_subset(path: str) -> None:
    with pytest.raises(jsonpath.JsonPathError):
        jsonpath.parse(path)


def test_every_table_renders_a_bare_object() -> None:
    bare = {
        "metadata": {"name": "x", "namespace": "n", "creationTimestamp": NOW.isoformat()},
        "spec": {},
    }
    for resource in builtin_types():
        record = Record(resource.key, ("n", "x"), bare, 1)
        table = tables.table(resource, None, [record], {}, NOW)
        assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
        assert table["rows"][0]["cells"][0] == "x"


def test_a_directory_keeps_its_api_server(tmp_path: Path) -> None:
    own, real = StateDir(tmp_path / "own"), StateDir(tmp_path / "real")
    assert own.api(None) == "own"
    assert real.api("real") == "real"
    assert (own.open().api, real.open("real").api) == ("own", "real")
    # As a version wrote and reads it that knows one kind only.
    assert "api" not in (tmp_path / "own" / "cluster.json").read_text()
    assert (own.open("own").api, real.open().api, real.api(None)) == ("own", "real", "real")
    for state, wanted in ((own, "real"), (real, "own")):
        with pytest.raises(DataDirError, match="purge first, or choose another directory"):
            state.open(wanted)
