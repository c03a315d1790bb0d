"""`gantry kube plan` against a cluster with a real operator: it says what then happens."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP
from integration.operator.operator_world import World
from integration.operator.test_steps import deletions, rolled


async def gantry(world: World, *args: str, text: str = "") -> tuple[int, str, str]:
    """`gantry kube ARGS` in a process of its own: exit code, and what it printed."""
    command = [sys.executable, "-m", "gantry_cli", "kube", *args]
    done = await asyncio.to_thread(  # to start a process takes a while on a busy machine
        subprocess.run,
        [*command, "--kubeconfig", str(world.kubeconfig)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def wish(world: World, **spec: Any) -> str:
    """The group's manifest with other fields, as its owner has it in a file."""
    live = world.require(BROKER_GROUP, "orders")
    body = {key: live[key] for key in ("apiVersion", "kind")}
    return yaml.safe_dump(body | {"metadata": {"name": "orders"}, "spec": live["spec"] | spec})


async def planned(world: World, **spec: Any) -> dict[str, Any]:
    code, out, error = await gantry(
        world, "plan", "-f", "-", "-o", "json", text=wish(world, **spec)
    )
    assert error == ""
    found: dict[str, Any] = json.loads(out)
    assert code == (1 if found["course"]["refused"] else 0)
    return found


def writes(world: World) -> list[str]:
    """Each change of the store, from now on."""
    found: list[str] = []

    def note(event: Event) -> None:
        resource = event.record.resource[1]
        if resource not in ("leases", "events"):  # the operator's own
            found.append(f"{event.type} {resource} {event.record.obj['metadata']['name']}")

    world.cluster.registry.store.subscribe(note, name="writes")
    return found


async def test_what_is_announced_is_what_is_done(world: World) -> None:
    async with world.operator():
        await world.up()
        written = writes(world)
        found = await planned(world, image="gantry:2")
        assert written == [], "a plan changes nothing"
        steps = [step for step in found["course"]["steps"] if step["disruptive"]]
        restarts = [name for step in steps for name in step["pods"]]
        (move,) = [move for step in steps for move in step["moves"]]
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: len(gone) == 3 and rolled(world), "all pods are replaced")
        await world.settled()
        assert gone == restarts
        status = world.require(BROKER_GROUP, "orders")["status"]
        assert status["master"]["pod"] == move["toPod"]
        change = status["lastChange"]
        assert (change["kind"], change["steps"]) == ("RollingUpdate", len(steps))
        assert change["predictedGapMs"] == found["gapMs"] == 500
        assert "measuredGapMs" not in change, "these brokers tell nothing, so nothing is told"
        assert change["finishedAt"] >= change["startedAt"]
        assert change["lostBytes"] == 0


async def test_a_refusal_is_told_before(world: World) -> None:
    async with world.operator():
        await world.up()
        written = writes(world)
        text = wish(world, storage={"size": "7Gi"})
        code, out, error = await gantry(world, "plan", "-f", "-", text=text)
        assert (code, error) == (1, "")
        assert "BrokerGroup default/orders: refused" in out
        assert "Refused, ImmutableFieldChanged: spec.storage.size can grow and never shrink" in out
        invalid = await planned(world, replication={"minInSyncReplicas": 9})
        assert invalid["course"]["refused"] == "InvalidSpec"
        unknown = await planned(world, config={"log_segmnt_bytes": "1"})
        assert "log_segmnt_bytes" in unknown["course"]["message"]
        assert written == []


async def test_growing_volumes_are_announced_without_a_gap(world: World) -> None:
    async with world.operator():
        await world.up()
        written = writes(world)
        code, out, error = await gantry(
            world, "plan", "-f", "-", text=wish(world, storage={"size": "77Gi"})
        )
        assert (code, error, written) == (0, "", [])
        assert out.splitlines() == [
            "BrokerGroup default/orders: no pod is taken away and no mastership moves",
            "   1. Change StatefulSet orders-broker.",
            "   2. Make data-orders-broker-2 larger, 77Gi. Sends go on.",
            "   3. Make data-orders-broker-1 larger, 77Gi. Sends go on.",
            "   4. Make data-orders-broker-0 larger, 77Gi. Sends go on.",
            "",
            "Nothing was changed.",
        ]


async def test_what_is_read_by_people(world: World) -> None:
    async with world.operator():
        await world.up()
        nothing = await gantry(world, "plan", "-f", "-", text=wish(world))
        assert nothing[:2] == (
            0,
            "BrokerGroup default/orders: nothing would change\n\nNothing was changed.\n",
        )
        _, out, _ = await gantry(world, "plan", "-f", "-", text=wish(world, replicas=2))
        assert out.splitlines() == [
            "BrokerGroup default/orders: 1 disruptive step; sends go on",
            "   1. Remove orders-broker-2.",
            "   2. Tell the controllers: 2 replicas, at least 2 in sync.",
            "",
            "Nothing was changed.",
        ]
        _, out, _ = await gantry(
            world, "plan", "-f", "-", text=wish(world, config={"lock_wait_s": "1"})
        )
        head, *steps = out.splitlines()
        assert head == (
            "BrokerGroup default/orders: 4 disruptive steps, 1 move of a mastership; sends wait "
            "about 500 ms at a time (the bound of a hand-over)"
        )
        assert [line[6:].partition(".")[0] for line in steps[:-2]] == [
            "Change StatefulSet orders-broker",
            "Restart orders-broker-2",
            "Restart orders-broker-1",
            "Move the mastership from orders-broker-0 to orders-broker-1",
            "Restart orders-broker-0",
        ]


async def test_what_would_wait_says_so(world: World) -> None:
    async with world.operator():
        await world.up()
        world.quorum.lagging.update({"orders-broker-1", "orders-broker-2"})
        world.unready("orders-broker-2")  # so that the operator looks
        await world.until(
            lambda: world.condition("FullyReplicated")["status"] == "False", "they lag"
        )
        found = await planned(world, replicas=2)
        assert found["course"]["waits"] == "UnsafeScaleDown", found["course"]
        assert [step for step in found["course"]["steps"] if step["disruptive"]] == []


async def test_a_whole_cluster_is_foreseen_before_it_exists(world: World, tmp_path: Path) -> None:
    files = []
    for name in ("controllergroup.yaml", "brokergroup.yaml"):
        files += ["-f", str(Path(__file__).parents[3] / "examples" / name)]
    written = writes(world)
    code, out, _ = await gantry(world, "plan", *files, "-o", "json")
    quorum, group = map(json.loads, out.splitlines())
    assert code == 0
    assert (quorum["kind"], group["kind"]) == ("ControllerGroup", "BrokerGroup")
    assert [quorum["exists"], group["exists"]] == [False, False]
    for found in (quorum, group):
        assert (found["course"]["refused"], found["course"]["waits"]) == ("", "")
        assert "Start" in [step["kind"] for step in found["course"]["steps"]]
    assert written == []
    code, out, _ = await gantry(world, "plan", *files[2:])
    assert code == 1
    assert "ControllerGroupNotFound" in out


async def test_controllers_are_rolled_the_leader_last(world: World) -> None:
    async with world.operator():
        await world.up()
        live = world.require(CONTROLLER_GROUP, "gantry")
        body = {key: live[key] for key in ("apiVersion", "kind")} | {
            "metadata": {"name": "gantry"},
            "spec": live["spec"] | {"config": {"election_timeout_ms": "900"}},
        }
        code, out, _ = await gantry(
            world, "plan", "-f", "-", "-o", "json", text=yaml.safe_dump(body)
        )
        assert code == 0
        found = json.loads(out)
        restarts = [s["pods"][0] for s in found["course"]["steps"] if s["disruptive"]]
        leader = live["status"]["leader"]["pod"]
        assert len(restarts) == 3
        assert restarts[-1] == leader
        assert found["gapMs"] == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "There is no resource in what was given", id="nothing"),
        pytest.param("{", "cannot be read", id="no-yaml"),
        pytest.param(
            "kind: Pod\nmetadata: {name: a}", "of which the operator makes no plan", id="pod"
        ),
        pytest.param("kind: BrokerGroup", "without metadata.name", id="no-name"),
        pytest.param("- 1", "holds no resource", id="a-list"),
    ],
)
async def test_bad_input_is_answered_with_a_sentence(
    world: World, text: str, sentence: str
) -> None:
    code, out, error = await gantry(world, "plan", "-f", "-", text=text)
    assert (code != 0, out) == (True, "")
    assert sentence in error
    assert "Traceback" not in error


async def test_one_screen_says_who_leads_and_why_it_is_not_well(world: World) -> None:
    assert (await gantry(world, "status"))[1] == "Namespace default has no groups.\n"
    async with world.operator():
        await world.up()
        code, out, _ = await gantry(world, "status")
        assert (code, out.splitlines()) == (
            0,
            [
                "ControllerGroup gantry: Healthy; gantry-controller-0 leads",
                "BrokerGroup orders: Healthy; orders-broker-0 is master at epoch 1, 3/3 in sync",
            ],
        )
        world.quorum.lagging.add("orders-broker-2")
        world.unready("orders-broker-1")
        await world.until(lambda: "replica" in world.condition("Ready")["message"], "one lags")
        code, out, _ = await gantry(world, "status", "-o", "json")
        _, group = map(json.loads, out.splitlines())
        assert "replica 2: CatchingUp" in group["notes"]
        assert group["why"] == world.condition("Ready")["message"]


def test_kubectl_finds_it() -> None:
    program = "from gantry_cli.main import kubectl_plugin; kubectl_plugin()"
    command = [sys.executable, "-c", program, "plan", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl gantry plan")
    scripts = (Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8")
    assert 'kubectl-gantry = "gantry_cli.main:kubectl_plugin"' in scripts
