"""What people change in a broker group that lives, until it is done.

paused     nobody takes a pod of it
supervised a change that restarts pods is announced, with as many restarts as there are pods, and
           waits for the word of a person: until then every pod that is made has the old template,
           also one that replaces a deleted one or is one more, and another word lets nothing go
volumes    grow one at a time, and no claim asks for less than it did; no pod goes for it, but each
           once where file systems grow only when they are mounted; where the class allows no growth
           the group says so, and nothing is asked for any more
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.strategies import FIXED_CLASS
from gantry_local.controllers.claims import OFFLINE
from gantry_operator import names
from gantry_operator.plan.objects import is_larger
from sim.kernel.world import Violation
from sim.product.people import LOOK_S, People

if TYPE_CHECKING:
    from random import Random

DEEDS = ("scale", "roll", "switchover", "pause", "supervise", "grow")
CLASSES = (None, None, OFFLINE, FIXED_CLASS)
NOTE = "roll"
ANOTHER = "00000000"
LOOKS = 15  # at what must not go meanwhile
PENDING_S = 1.0  # for so long a file system may be behind its volume in these runs


class GuestChanges(People):
    """See the module."""

    async def _change(self, deed: str, name: str, spec: dict[str, Any], rng: Random) -> bool:
        """A change that people make, one of ``DEEDS``, until it is done; False if it never is."""
        match deed:
            case "scale":
                self._scale(name, spec, rng)
            case "roll":
                self._roll(name, rng)
            case "switchover":
                wish = {"id": f"{rng.getrandbits(32):x}", "to": rng.randrange(spec["replicas"])}
                self._patch(name, {"switchover": wish})
            case "pause":
                await self._pause(name, rng)
            case "supervise":
                await self._supervise(name, spec, rng)
            case "grow":
                if not await self._grow(name, spec):
                    return False
        await self._until(f"{name} to be changed", lambda: self._is_ready(name))
        return True

    def _scale(self, name: str, spec: dict[str, Any], rng: Random) -> None:
        spec["replicas"] = rng.randint(spec["replication"]["minInSyncReplicas"], 3)
        self._patch(name, {"replicas": spec["replicas"]})
        self._cluster.world.count("guest-scaled")

    def _roll(self, name: str, rng: Random) -> str:
        note = f"{rng.getrandbits(32):x}"
        self._patch(name, {"template": {"metadata": {"annotations": {NOTE: note}}}})
        return note

    async def _pause(self, name: str, rng: Random) -> None:
        """A change while it is paused: no pod goes but by people. Raises Violation."""
        self._patch(name, {"paused": True})
        await self._until(
            f"{name} to be paused", lambda: (self._condition(name, "Paused") or ("",))[0] == "True"
        )
        pods = self._pods(name)
        self._roll(name, rng)
        await asyncio.sleep(4.0)
        gone = set(pods.values()) - set(self._pods(name).values())
        if gone - self._cluster.deleted_by_people:
            raise Violation(f"{name} is paused, and its pods are {self._pods(name)}, were {pods}")
        self._cluster.world.count("guest-paused")
        self._patch(name, {"paused": False})

    # ---- changes that wait for a person

    async def _supervise(self, name: str, spec: dict[str, Any], rng: Random) -> None:
        """A change that goes when a person says so. Raises Violation: some of it goes before."""
        self._patch(name, {"update": {"strategy": "Supervised"}})
        await self._until(f"{name} to be supervised", lambda: self._is_ready(name))
        note = self._roll(name, rng)
        await self._until(f"{name} to announce a change", lambda: bool(self._pending(name)))
        found = self._pending(name)
        if found.get("restarts") not in (None, 0, spec["replicas"]):
            raise Violation(f"{name} has {spec['replicas']} pods, and announces {found}")
        meanwhile = rng.choice(["", "another", "scale", "delete"])
        if meanwhile == "another":
            self._patch(name, {"update": {"approved": ANOTHER}})
        elif meanwhile == "scale":
            self._scale(name, spec, rng)
        elif meanwhile == "delete":
            self._cluster.delete_pod(rng.choice(sorted(self._pods(name))))
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_S)
            early = [pod for pod, said in self._notes(name).items() if said == note]
            if early:
                raise Violation(f"{early} have a change of {name} that nobody approved: {found}")
        self._patch(name, {"update": {"approved": found["id"]}})
        await self._until(
            f"{name} to carry out what was approved",
            lambda: self._is_ready(name) and set(self._notes(name).values()) == {note},
        )
        self._cluster.world.count("guest-supervised")
        self._patch(name, {"update": {"strategy": "Automatic", "approved": None}})

    def _pending(self, name: str) -> dict[str, Any]:
        """The change that waits, as people read it; empty without one."""
        return dict(self._status(name).get("pendingChange") or {})

    def _notes(self, name: str) -> dict[str, str]:
        """By pod, the template that it was made of."""
        return {
            pod["metadata"]["name"]: (pod["metadata"].get("annotations") or {}).get(NOTE, "")
            for pod in self._of("pods", name)
        }

    # ---- volumes

    async def _grow(self, name: str, spec: dict[str, Any]) -> bool:
        """Larger volumes; False where their class allows none, and the wish stays unfulfilled.

        Raises Violation: they grow as they must not.
        """
        storage, pods = spec["storage"], self._pods(name)
        before, kind = storage["size"], storage.get("className")
        storage["size"] = f"{int(before.removesuffix('Gi')) + 1}Gi"
        asked = {claim: sizes[0] for claim, sizes in self._sizes(name).items()}
        self._patch(name, {"storage": {"size": storage["size"]}})

        def done() -> bool:
            sizes = self._sizes(name)
            self._judge_sizes(name, asked, sizes)
            if kind == FIXED_CLASS:
                return self._condition(name, "Ready") == ("False", "VolumeExpansionRefused")
            return self._is_ready(name) and self._have_grown(name, storage["size"], sizes)

        await self._until(f"the volumes of {name} to grow", done)
        if kind == FIXED_CLASS:
            storage["size"] = before  # of the next resource of this name
            self._cluster.world.count("growth-refused")
            return False
        gone = {uid for uid in pods.values() if uid not in self._pods(name).values()}
        if gone - self._cluster.deleted_by_people and kind != OFFLINE:
            raise Violation(f"volumes of {name} grew, and its pods {pods} are {self._pods(name)}")
        if kind == OFFLINE and len(gone) < len(pods):
            raise Violation(f"file systems of {name} grew without a restart of {pods}")
        self._cluster.world.count(f"grown-{kind}")
        return True

    def _judge_sizes(
        self, name: str, asked: dict[str, str], sizes: dict[str, tuple[str, str]]
    ) -> None:
        """Raises Violation: two grow at once, or one asks for less than it did."""
        growing = [claim for claim, (wish, got) in sizes.items() if got and is_larger(wish, got)]
        if len(growing) > 1:
            raise Violation(f"{growing} of {name} grow at once: {sizes}")
        for claim, (wish, _) in sizes.items():
            if is_larger(asked.get(claim, "0"), wish):
                raise Violation(f"{claim} asked for {asked[claim]}, and asks for {wish}")
            asked[claim] = wish

    def _have_grown(self, name: str, size: str, sizes: dict[str, tuple[str, str]]) -> bool:
        claims = [f"data-{pod}" for pod in self._pods(name)]
        return all(sizes.get(claim) == (size, size) for claim in claims)

    def _sizes(self, name: str) -> dict[str, tuple[str, str]]:
        """By claim, what it asks for and what it has got."""
        return {
            one["metadata"]["name"]: (
                one["spec"]["resources"]["requests"]["storage"],
                ((one.get("status") or {}).get("capacity") or {}).get("storage", ""),
            )
            for one in self._of("persistentvolumeclaims", name)
        }

    # ---- objects

    def _of(self, plural: str, name: str) -> list[dict[str, Any]]:
        """Objects whose names begin with that of the guest's StatefulSet."""
        begin = names.broker_statefulset(name)
        found = self._cluster.objects(plural)
        return [obj for obj in found if f"{begin}-" in f"{obj['metadata']['name']}-"]

    def _pods(self, name: str) -> dict[str, str]:
        return {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in self._of("pods", name)}
