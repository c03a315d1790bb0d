"""`kubectl gantry approve`, `switchover`, `hibernate` and `wake` against a real operator."""

from __future__ import annotations

import pytest
from gantry_operator.api.errors import Conflict, Denied
from gantry_operator.api.kinds import BROKER_GROUP
from gantry_operator.operations import wishes
from gantry_operator.operations.asking import ask
from gantry_operator.preview.client import connected
from gantry_protocol.errors import GantryError
from integration.operator.operator_world import World
from integration.operator.test_announced import gantry, writes
from integration.operator.test_hibernation import claims, is_asleep
from integration.operator.test_shards import up as sharded
from integration.operator.test_steps import deletions, rolled
from integration.operator.test_supervised import SUPERVISED, status, waits
from support.api_faults import Rule

ORDERS = "BrokerGroup default/orders"


async def test_a_change_is_approved_and_followed(world: World) -> None:
    async with world.operator():
        await world.up(update=SUPERVISED)
        code, _, error = await gantry(world, "approve", "orders")
        assert code != 0
        assert "No change of BrokerGroup default/orders waits for approval." in error
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: waits(world), "it waits")
        change, written, gone = waits(world), writes(world), deletions(world)
        code, out, error = await gantry(world, "approve", "orders", "--dry-run")
        assert (code, error, written, gone) == (0, "", [], [])
        assert "4 disruptive steps, 1 move of a mastership" in out
        assert "Restart orders-broker-2" in out
        code, _, error = await gantry(world, "approve", "orders", "00000000")
        assert code != 0
        assert (
            f"Change 00000000 of BrokerGroup default/orders does not wait; {change} does" in error
        )
        assert written == []
        code, out, error = await gantry(world, "approve", "orders", change, "--wait")
        assert (code, error) == (0, "")
        assert (
            f"Change {change} of BrokerGroup default/orders is approved: image gantry:test" in out
        )
        assert out.splitlines()[-1] == (
            f"Change {change} of BrokerGroup default/orders is carried out."
        )
        assert rolled(world)
        assert len(gone) == 3
        fields = world.require(BROKER_GROUP, "orders")["metadata"]["managedFields"]
        assert "kubectl-gantry" in {entry["manager"] for entry in fields}


async def test_a_mastership_moves_on_request(world: World) -> None:
    async with world.operator():
        await world.up()
        code, out, error = await gantry(
            world, "switchover", "orders", "--to", "2", "--id", "a", "--wait"
        )
        assert (code, error) == (0, "")
        assert "Move the mastership from orders-broker-0 to orders-broker-2" in out
        assert out.splitlines()[-1] == "Completed: Replica 2 is the master, at epoch 2."
        code, _, error = await gantry(world, "switchover", "orders", "--to", "2")
        assert code != 0
        assert "Replica 2 of BrokerGroup default/orders is the master already." in error
        world.quorum.lagging.add("orders-broker-1")
        world.unready("orders-broker-1")  # so that the operator looks
        await world.until(lambda: status(world)["inSyncReplicas"] == [0, 2], "one lags")
        code, _, error = await gantry(world, "switchover", "orders", "--to", "1")
        assert code != 0
        assert "Replica 1 of BrokerGroup default/orders is not in sync (in sync: 0, 2)" in error
        code, out, _ = await gantry(world, "switchover", "orders", "--wait")
        assert code == 0, "without an ordinal and an id of its own"
        assert out.splitlines()[-1] == "Completed: Replica 0 is the master, at epoch 3."


async def test_a_group_is_put_to_sleep_and_woken(world: World) -> None:
    async with world.operator():
        await world.up()
        kept, written = claims(world), writes(world)
        code, out, error = await gantry(world, "hibernate", "orders", text="")
        assert code != 0
        assert "--yes" in error
        assert "Nobody is served until the group wakes." in out, (
            "the plan comes before the question"
        )
        assert written == []
        code, out, error = await gantry(world, "hibernate", "orders", "--yes", "--wait")
        assert (code, error) == (0, "")
        assert out.splitlines()[-2:] == ["Hibernated", "BrokerGroup default/orders sleeps."]
        assert is_asleep(world)
        again = await gantry(world, "hibernate", "orders", "--yes", "--wait")
        assert again[:2] == (
            0,
            "It is as wished already.\nHibernated\nBrokerGroup default/orders sleeps.\n",
        )
        code, out, error = await gantry(world, "wake", "orders", "--wait")
        assert (code, error) == (0, "")
        assert out.splitlines()[-2:] == ["Healthy", "BrokerGroup default/orders is awake."]
        assert claims(world) == kept
        assert len(world.quorum.pods("broker", "orders")) == 3


async def test_what_the_operator_refuses_is_not_written(world: World) -> None:
    async with world.operator():
        await world.up(replicas=1, storage={"type": "EmptyDir"})
        written = writes(world)
        code, out, _ = await gantry(world, "hibernate", "orders", "--yes")
        assert code == 1
        assert "Refused, InvalidSpec: hibernated removes the pods" in out
        assert written == []
        code, _, error = await gantry(world, "wake", "nothing")
        assert code != 0
        assert "There is no BrokerGroup nothing in namespace default" in error
        code, _, error = await gantry(world, "approve", "orders")
        assert code != 0
        assert "spec.update.strategy is Automatic" in error


async def test_the_wait_ends_and_the_operator_goes_on(world: World) -> None:
    async with world.operator():
        await world.up()
        world.quorum.lagging.update({"orders-broker-1", "orders-broker-2"})
        code, out, error = await gantry(
            world, "hibernate", "orders", "--yes", "--wait", "--timeout", "3"
        )
        assert code != 0
        assert "It is not done after 3 s; the operator goes on." in error
        assert "Not hibernated" in out
        world.quorum.lagging.clear()
        await world.until(lambda: is_asleep(world), "it goes on")


async def test_a_wish_is_judged_anew_when_somebody_else_was_faster(world: World) -> None:
    async with world.operator():
        await world.up()
        world.cluster.api.faults.add(Rule(code=409, verb="patch", plural="brokergroups"))
        async with connected(world.kubeconfig) as api:
            seen: list[str] = []

            def decide(body: dict[str, object]) -> wishes.SpecWish:
                seen.append("")
                return wishes.hibernation(body, asleep=True)

            await ask(api, "default", "orders", decide)
            assert len(seen) >= 2
            await world.until(lambda: is_asleep(world), "it was written")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(Conflict(409, "Conflict", "another"), "changes all the time", id="conflict"),
        pytest.param(Denied(403, "Forbidden", "you may not"), "you may not", id="no-rights"),
    ],
)
async def test_what_cannot_be_written_is_one_sentence(
    world: World, error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.group()
    async with connected(world.kubeconfig) as api:

        async def refused(*_: object, **__: object) -> dict[str, object]:
            raise error

        monkeypatch.setattr(api, "merge", refused)
        with pytest.raises(GantryError, match=sentence):
            await ask(api, "default", "orders", lambda b: wishes.hibernation(b, asleep=True))


async def test_a_replica_is_fenced_and_let_in_again(world: World) -> None:
    async with world.operator():
        await world.up()
        written = writes(world)
        code, out, error = await gantry(world, "fence", "orders", "0", "--dry-run")
        assert (code, error, written) == (0, "", [])
        assert "Move the mastership from orders-broker-0 to orders-broker-1" in out
        assert "Fence orders-broker-0: it serves nobody and is never elected." in out
        code, out, error = await gantry(world, "fence", "orders", "orders-broker-0", "--wait")
        assert (code, error) == (0, "")
        assert out.splitlines()[-1] == f"Fenced in {ORDERS}: replica 0."
        orders = [one for one in world.quorum.log if one.startswith(("elect", "fence"))]
        assert orders == ["elect orders 2", "fence 1"]
        world.unready("orders-broker-0")  # as its broker says from then on
        await world.until(lambda: status(world)["readyReplicas"] == 2, "it is not Ready")
        await world.until(lambda: status(world)["summary"] == "Healthy (Fenced)", "as wished")
        assert status(world)["members"][0]["state"] == "Fenced"
        code, _, error = await gantry(world, "fence", "orders", "1", "2")
        assert code != 0
        assert "kubectl gantry hibernate" in error
        code, out, _ = await gantry(world, "fence", "orders", "2", "--wait")
        assert code == 1
        assert "minInSyncReplicas is 2" in out
        assert "fence 3" not in world.quorum.log
        code, _, error = await gantry(world, "unfence", "orders", "2")
        assert (code, error) == (0, "")
        world.unready()
        code, out, error = await gantry(world, "unfence", "orders", "0", "--wait")
        assert (code, error) == (0, "")
        assert out.splitlines()[-1] == f"Let in again in {ORDERS}: replica 0."
        assert world.quorum.log[-1] == "unfence 1"
        assert world.condition("Fenced")["status"] == ""


async def test_a_roll_goes_past_a_fenced_replica(world: World) -> None:
    async with world.operator():
        await world.up(replication={"minInSyncReplicas": 1}, fenced=[2])
        gone = deletions(world)
        world.unready("orders-broker-2")
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: len(gone) == 2, "two are replaced")
        await world.until(lambda: status(world)["summary"] == "Healthy (Fenced)", "as wished")
        assert gone == ["orders-broker-1", "orders-broker-0"]
        world.unready()
        world.patch(BROKER_GROUP, "orders", {"spec": {"fenced": []}})
        await world.until(lambda: rolled(world) and len(gone) == 3, "it has the new image, too")


async def test_a_ghost_is_forgotten_on_request(world: World) -> None:
    ghost = {"brokerId": 7, "address": "", "podUid": "gone", "alive": False, "inSync": False}
    async with world.operator():
        await world.up()
        world.quorum.lagging.add("orders-broker-2")  # or it would go by itself
        world.quorum.groups["orders"]["gone"] = [ghost]
        world.unready("orders-broker-2")
        await world.until(lambda: len(status(world)["members"]) == 4, "it is seen")
        code, _, error = await gantry(world, "forget", "orders", "2")
        assert code != 0
        assert "Broker 2 of BrokerGroup default/orders is InSync" in error
        code, out, error = await gantry(world, "forget", "orders", "7", "--wait")
        assert (code, error) == (0, "")
        assert out.splitlines()[-1] == "Completed: The member is struck from the record."
        assert "forget orders 7" in world.quorum.log
        assert [one["brokerId"] for one in status(world)["members"]] == [1, 2, 3]
        code, out, _ = await gantry(world, "forget", "orders", "3", "--wait")
        assert code == 1, "it has a pod"
        assert "has a pod, orders-broker-2" in out


async def test_with_shards_all_members_of_a_pod_are_fenced(world: World) -> None:
    async with world.operator():
        await sharded(world, 2)
        code, out, error = await gantry(world, "fence", "orders", "1", "--wait")
        assert (code, error) == (0, "")
        assert "Fence orders-broker-1 of orders_0" in out
        assert out.splitlines()[-1] == f"Fenced in {ORDERS}: replica 1."
        assert world.quorum.log.count("fence 2") == 2
        code, out, error = await gantry(world, "fence", "orders", "1")
        assert (code, out) == (0, "It is as wished already.\n")
        code, out, error = await gantry(world, "unfence", "orders", "1", "--dry-run")
        assert (code, error) == (0, "")
        assert "Let orders-broker-1 of orders_1 in again" in out
        code, out, error = await gantry(world, "unfence", "orders", "1", "--wait")
        assert (code, error) == (0, "")
        assert world.quorum.log.count("unfence 2") == 2
        code, _, error = await gantry(world, "forget", "orders", "2")
        assert "use gantry forget SHARD --member 2" in error
