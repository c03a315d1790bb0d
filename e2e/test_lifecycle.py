"""A BrokerGroup from its first `kubectl apply` to its deletion, as the API server has it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from gantry_operator import names
from harness import client
from harness.ahead import one_ahead
from harness.installation import new_namespace
from harness.shell import CommandError
from harness.waiting import wait_until
from harness.wishes import COLUMNS, FIXED, GROUP, REFUSED, broker_group, resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kube import Kube, Object

pytestmark = pytest.mark.usefixtures("kube")

START_PATIENCE_S = 90.0
ROLL_PATIENCE_S = 300.0
DELETE_PATIENCE_S = 90.0
NAMESPACE_PATIENCE_S = 180.0
OWNED = "statefulsets,services,configmaps,poddisruptionbudgets,pods"
SELECTOR = names.selector_text(names.BROKER, GROUP)


@pytest.fixture(scope="module")
def quorums(bare: Kube, image: str, request: pytest.FixtureRequest) -> Iterator[Iterator[Kube]]:
    """For each test that asks for one a namespace with a ControllerGroup that starts."""
    made: list[Kube] = []

    def begin() -> Kube:
        made.append(new_namespace(bare))
        made[-1].apply(resource("ControllerGroup", client.CONTROLLERS, image=image))
        return made[-1]

    asking = [one for one in request.session.items if "quorum" in fixtures_of(one)]
    yield one_ahead(len(asking), begin)
    for kube in made:  # those of tests that ended early, or never began
        kube.delete("namespace", kube.namespace)


def fixtures_of(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


@pytest.fixture
def quorum(quorums: Iterator[Kube]) -> Iterator[Kube]:
    """A namespace of its own with a ControllerGroup in it."""
    found = next(quorums)
    found.wait_for("controllergroup", client.CONTROLLERS, "Available", START_PATIENCE_S)
    yield found
    found.delete("namespace", found.namespace)


def start(kube: Kube, **spec: Any) -> Object:
    """Create the group, wait until all its replicas are in sync, and return it."""
    kube.apply(broker_group(**spec))
    return settled(kube)


def settled(kube: Kube) -> Object:
    def look() -> Object | None:
        group = kube.get("brokergroup", GROUP) or {"metadata": {}}
        status = group.get("status", {})
        conditions = {c["type"]: c for c in status.get("conditions", ())}
        current = status.get("observedGeneration") == group["metadata"].get("generation")
        wanted = {"Available": "True", "FullyReplicated": "True", "Progressing": "False"}
        steady = all(conditions.get(kind, {}).get("status") == is_ for kind, is_ in wanted.items())
        return group if current and steady else None

    return wait_until(f"{GROUP} is in sync and at rest", ROLL_PATIENCE_S, look)


def delete(kube: Kube) -> None:
    """Delete the group and wait until everything but volumes is gone."""
    kube.delete("brokergroup", GROUP)
    gone = f"everything that {GROUP} owns is gone"
    wait_until(gone, DELETE_PATIENCE_S, lambda: not kube.list(OWNED, SELECTOR))
    assert kube.get("brokergroup", GROUP) is None


def volumes(kube: Kube) -> dict[str, str]:
    """The group's claims and their uids."""
    claims = kube.list("persistentvolumeclaims", SELECTOR)
    return {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in claims}


def bodies(word: str, count: int = 50) -> list[str]:
    return [f"{word} {number:04}" for number in range(count)]


# --- what the API server refuses -------------------------------------------------------------


@pytest.mark.parametrize(("wish", "sentence"), REFUSED)
def test_bad_resource_is_refused_with_what_to_do(kube: Kube, wish: Object, sentence: str) -> None:
    with pytest.raises(CommandError) as refused:
        kube.within("default").ctl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(wish))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("kind", "change", "sentence"), FIXED)
def test_what_is_fixed_cannot_be_changed(
    kube: Kube, kind: str, change: Object, sentence: str
) -> None:
    name = GROUP if kind == "brokergroup" else client.CONTROLLERS
    with pytest.raises(CommandError) as refused:
        kube.ctl(
            *("patch", kind, name, "--dry-run=server", "--type=merge"),
            *("-p", json.dumps({"spec": change})),
        )
    assert sentence in str(refused.value)


def test_what_only_the_operator_can_tell_becomes_a_condition(scratch: Kube) -> None:
    scratch.apply(broker_group(config={"Segment-Bytes": "1"}))

    def refused() -> str:
        condition = scratch.condition("brokergroup", GROUP, "Accepted") or {}
        return str(condition.get("message", "")) if condition.get("status") == "False" else ""

    assert wait_until("the operator refuses it", START_PATIENCE_S, refused) == (
        "config takes setting names in lower case with underscores, such as log_segment_bytes: "
        "rename the keys that are written otherwise"
    )
    assert not scratch.list(OWNED, SELECTOR)


# --- what people see -------------------------------------------------------------------------


def test_explain_teaches(kube: Kube) -> None:
    fields = kube.ctl("explain", "bg.spec")
    assert "Number of replicas, the master included. Range 1 to 9; default 3." in words(fields)
    one = kube.ctl("explain", "bg.spec.replication.minInSyncReplicas")
    assert "A send is acknowledged only while at least this many replicas" in words(one)


def test_get_shows_the_state_in_one_line(kube: Kube) -> None:
    header, line = kube.ctl("get", "bg", GROUP).splitlines()
    assert header.split() == [*COLUMNS, "AGE"]
    name, status, master, epoch, *_ = line.split()
    assert (name, status) == (GROUP, "Healthy")
    assert master.startswith("orders-broker-")
    assert int(epoch) >= 1


def words(text: str) -> str:
    """Without line breaks, which depend on the width."""
    return " ".join(text.split())


# --- deletion --------------------------------------------------------------------------------


def test_group_created_again_takes_its_volumes_up(quorum: Kube) -> None:
    before = start(quorum)
    client.produce(quorum, "greetings", bodies("old"))
    kept = volumes(quorum)
    assert len(kept) == 3

    delete(quorum)
    assert volumes(quorum) == kept

    after = start(quorum)
    assert volumes(quorum) == kept
    client.produce(quorum, "greetings", bodies("new"))
    assert client.consume(quorum, "greetings") == bodies("new") + bodies("old")
    assert master(after)["epoch"] > master(before)["epoch"]
    assert broker_ids(after) == broker_ids(before)


def test_group_created_again_fills_a_volume_that_is_missing(quorum: Kube) -> None:
    before = start(quorum)
    client.produce(quorum, "greetings", bodies("old"))
    delete(quorum)
    lost = master(before)["replica"]
    claim = f"data-{names.pod(names.broker_statefulset(GROUP), lost)}"
    quorum.delete("persistentvolumeclaim", claim, wait=True)

    after = start(quorum)
    client.produce(quorum, "greetings", bodies("new"))
    assert client.consume(quorum, "greetings") == bodies("new") + bodies("old")
    # The empty volume is a new member: an id tells what a volume holds, so none is used twice.
    assert len(broker_ids(after) & broker_ids(before)) == 2


def test_group_created_again_without_its_volumes_is_empty(quorum: Kube) -> None:
    storage = {"whenDeleted": "Delete"}
    before = start(quorum, storage=storage)
    client.produce(quorum, "greetings", bodies("old"))

    delete(quorum)
    wait_until("the volumes are gone", DELETE_PATIENCE_S, lambda: not volumes(quorum))
    assert "greetings" not in client.topics(quorum)

    after = start(quorum, storage=storage)
    client.produce(quorum, "greetings", bodies("new"))
    assert client.consume(quorum, "greetings") == bodies("new")
    # Epochs and ids go on where the old group ended, so that nothing of it could be taken for new.
    assert master(after)["epoch"] > master(before)["epoch"]
    assert not broker_ids(after) & broker_ids(before)


def test_quorum_created_again_takes_its_volumes_up_by_itself(quorum: Kube) -> None:
    group = start(quorum)
    client.produce(quorum, "greetings", bodies("old"))
    old = quorum.get("controllergroup", client.CONTROLLERS)
    assert old is not None
    quorum.ctl("delete", "controllergroup", client.CONTROLLERS, "--wait=false")
    waits = "its deletion waits for the group, and says so"
    wait_until(waits, START_PATIENCE_S, lambda: GROUP in last_step(quorum))
    client.produce(quorum, "greetings", bodies("held"))
    quorum.ctl(
        *("patch", "controllergroup", client.CONTROLLERS, "--type=json"),
        *("-p", '[{"op": "remove", "path": "/metadata/finalizers"}]'),
    )
    delete_quorum(quorum)

    quorum.apply(resource("ControllerGroup", client.CONTROLLERS))
    quorum.wait_for("controllergroup", client.CONTROLLERS, "Available", START_PATIENCE_S)
    again = quorum.get("controllergroup", client.CONTROLLERS)
    assert again is not None
    assert again["metadata"]["uid"] != old["metadata"]["uid"]
    assert again["status"]["clusterUid"] == old["metadata"]["uid"]
    assert master(settled(quorum))["epoch"] == master(group)["epoch"]
    client.produce(quorum, "greetings", bodies("new"))
    said = client.consume(quorum, "greetings")
    assert said == bodies("held") + bodies("new") + bodies("old")


def delete_quorum(kube: Kube) -> None:
    kube.delete("controllergroup", client.CONTROLLERS)
    selector = names.selector_text(names.CONTROLLER, client.CONTROLLERS)
    gone = "everything that the quorum owns is gone"
    wait_until(gone, DELETE_PATIENCE_S, lambda: not kube.list(OWNED, selector))


def last_step(kube: Kube) -> str:
    """What the quorum's status says of what is under way."""
    found = kube.get("controllergroup", client.CONTROLLERS) or {}
    for condition in found.get("status", {}).get("conditions", ()):
        if condition["type"] == "Progressing":
            return str(condition["message"])
    return ""


def test_namespace_with_everything_in_it_can_be_deleted(quorum: Kube) -> None:
    start(quorum, storage={"whenDeleted": "Delete"})
    quorum.delete("namespace", quorum.namespace)
    wait_until(
        "the namespace is gone",
        NAMESPACE_PATIENCE_S,
        lambda: quorum.get("namespace", quorum.namespace) is None,
    )


def master(group: Object) -> dict[str, Any]:
    found: dict[str, Any] = group["status"]["master"]
    return found


def broker_ids(group: Object) -> set[int]:
    return {member["brokerId"] for member in group["status"]["members"] if "replica" in member}


# --- change ----------------------------------------------------------------------------------


def test_changed_config_restarts_the_master_last_and_no_send_fails(quorum: Kube) -> None:
    before = start(quorum)
    old_pods = pods(quorum)
    rolled = threading.Event()
    with ThreadPoolExecutor(1) as background:
        load = background.submit(send_until, quorum, rolled)
        try:
            change = {"spec": {"config": {"log_segment_bytes": "67108864"}}}
            quorum.patch("brokergroup", GROUP, change)
            after = settled(quorum)
        finally:
            rolled.set()
        sent = load.result()
    assert sorted(set(client.consume(quorum, "greetings"))) == sent

    new_pods = pods(quorum)
    assert not {uid for uid, _ in old_pods.values()} & {uid for uid, _ in new_pods.values()}
    created = {name: when for name, (_, when) in new_pods.items()}
    assert max(created, key=lambda name: created[name]) == master(before)["pod"]
    assert master(after)["epoch"] == master(before)["epoch"] + 1


def send_until(kube: Kube, stop: threading.Event) -> list[str]:
    """Send without a failure until told to stop; what was sent."""
    sent: list[str] = []
    while not stop.is_set():
        messages = bodies(f"batch {len(sent):06}", 900)
        summary = client.produce(kube, "greetings", messages, "--rate=60")
        assert (summary["acknowledged"], summary["failed"]) == (len(messages), 0), summary
        sent += messages
    return sent


def pods(kube: Kube) -> dict[str, tuple[str, str]]:
    """Uid and time of creation of the group's pods, by name."""
    found = (pod["metadata"] for pod in kube.list("pods", SELECTOR))
    return {meta["name"]: (meta["uid"], meta["creationTimestamp"]) for meta in found}
