"""A person who asks things of the watched group, one after the other, each until it is done.

========  ========================================================================================
fenced    who is to take no part stands aside and gets no byte, and sends are answered without it;
          of more than can be missed nobody else is taken out, and the status says why
minimum   a higher minimum that fewer are in sync than it asks for stops no send; it holds once
          they are
forgotten nobody is struck who leads, lives, is to come back, or is not known; a member whose
          volume is gone is struck in the end
wrong     settings that cannot be meant change nothing; where nobody checks them one replica takes
          them, its own last words are told, and the others go on
policy    what the API server does not allow is told in its words, no pod goes meanwhile, and it is
          carried out once it is allowed, without anybody's doing
outside   see ``outside``
========  ========================================================================================

Deeds that a second fault would turn into a loss, or that need everybody, wait for the peace.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Any

from gantry_broker.replica import Role
from gantry_operator import names
from gantry_operator.plan.reasons import Reason
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, GROUP
from sim.product.operated import BROKERS
from sim.product.operated_watch import is_ready
from sim.product.outside import ENDS, Outside, certificate
from sim.product.people import LOOK_S

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Node
    from sim.product.operated import OperatedCluster
    from sim.product.watch import Watch

MORE = 3  # sends that are answered meanwhile
NOBODY = 99  # a broker id
STRANGE = "no_such_setting"
POLICY = "the policy of this house"
NOTE = "asked"
AT_ANY_TIME = ("fence", "refuse-to-forget", "policy")
IN_PEACE = ("forget", "wrong", "outside", "minimum", "scale")
MISTAKES: tuple[tuple[str, str], ...] = (  # settings that no broker takes
    (STRANGE, "1"),
    ("log_segment_bytes", "few"),
    ("log_segment_bytes", "-1"),
    ("max_batch_messages", "0"),
    ("log_level", "loud"),
)
PASSWORD, IN_URL = "swordfish-and-chips", "open-sesame-17"
KEY = b64decode(certificate(ENDS)["tls.key"]).decode()
HIDDEN = (PASSWORD, IN_URL, KEY.splitlines()[1])
"""What people write where it should not stand; nothing that they give away may have it."""


class Asked(Outside):
    """See the module.

    Attributes:
        rests: nothing new is begun for a while, nor before the group stands.
        deed: under way; empty for none.
    """

    unsettled = "what was asked for is not done"
    plural = "brokergroups"

    def __init__(self, cluster: OperatedCluster, watch: Watch) -> None:
        super().__init__(cluster)
        self.rests = True
        self.deed = ""
        self._watch = watch
        self._requests = 0
        watch.more.append(self._look)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("asked-people", self._live).boot()

    def told(self) -> str:
        """What the status says, for who reads that something is not done."""
        return "; ".join(f"{one['type']}: {one['message']}" for one in self._conditions())

    def _conditions(self) -> list[dict[str, Any]]:
        """Those of the present generation."""
        return list(self._status(GROUP).get("conditions") or ())

    async def _live(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        await self._until("the cluster to be set up", lambda: self._cluster.is_set_up)
        first = [(deed, False) for deed in rng.sample(AT_ANY_TIME, len(AT_ANY_TIME))]
        then = [(deed, True) for deed in rng.sample(IN_PEACE, len(IN_PEACE))]
        for deed, waits in [*first, *then]:
            await self._until("peace", partial(self._may_begin, waits))
            self.deed = deed
            await self._do(deed, rng)
            self.deed = ""
            self._cluster.world.count(f"asked-{deed}")
        self._busy -= 1

    def _may_begin(self, waits: bool) -> bool:
        return not self.rests and (self._cluster.is_at_peace or not waits)

    async def _do(self, deed: str, rng: Random) -> None:
        """One deed, from a group that is well to one that is again."""
        await self._until(f"{GROUP} to be well before {deed}", lambda: self._is_ready(GROUP))
        match deed:
            case "fence":
                await self._fence(rng)
            case "refuse-to-forget":
                await self._must_not_forget(rng)
            case "forget":
                await self._lose_and_forget(rng)
            case "scale":
                await self._scale()
            case "minimum":
                await self._raise_minimum(rng)
            case "wrong":
                await self._mistake_a_setting()
            case "policy":
                await self._forbid(rng)
            case "outside":
                await self._lead_outside(rng)
        await self._until(f"{GROUP} to be well after {deed}", lambda: self._is_ready(GROUP))

    def _look(self) -> None:
        """Raises Violation: so many are fenced that the others are too few."""
        group = self._group()
        if group is None or not group.fenced:
            return
        others = {int(member.broker_id) for member in group.members} - set(map(int, group.fenced))
        if len(others) < self._cluster.min_in_sync:
            raise Violation(f"fenced: {group.fenced} are, and {others} are left")

    # ---- fenced

    async def _fence(self, rng: Random) -> None:
        cluster = self._cluster
        ordinal = rng.randrange(cluster.replicas)
        if rng.random() < 0.6:
            ordinal = (self._status(GROUP).get("master") or {}).get("replica", ordinal)
        name = names.pod(BROKERS, ordinal)
        note = f"{rng.getrandbits(32):x}"
        waiting: dict[str, Any] = {"template": {"metadata": {"annotations": {NOTE: note}}}}
        self._patch(GROUP, {"fenced": [ordinal], "update": {"strategy": "Supervised"}, **waiting})
        await self._until(
            f"{name} to be fenced",
            lambda: self._condition(GROUP, "Fenced") == ("True", Reason.MEMBERS_FENCED),
        )
        await self._until(f"{name} to stand aside", lambda: self._stands_aside(name))
        end = self._end_of(name)
        acks = self._watch.acks
        await self._until("sends to be answered without it", lambda: self._watch.acks > acks + MORE)
        if end is not None and self._end_of(name) not in (None, end):
            raise Violation(f"fenced: {name} is, and goes from {end} to {self._end_of(name)}")
        if self._noted(note):
            raise Violation(f"fenced: {self._noted(note)} have a change that nobody approved")
        waiting["template"]["metadata"]["annotations"] = {NOTE: None}
        self._patch(GROUP, {"update": {"strategy": "Automatic"}, **waiting})
        if rng.random() < 0.7:
            stays = rng.choice([one for one in range(cluster.replicas) if one != ordinal])
            wish = [one for one in range(cluster.replicas) if one != stays]
            self._patch(GROUP, {"fenced": wish})
            await self._until(
                "too many not to be fenced",
                lambda: (
                    (self._condition(GROUP, "Progressing") or ("", ""))[1] == Reason.UNSAFE_FENCE
                ),
            )
            cluster.world.count("fence-refused")
        self._patch(GROUP, {"fenced": None})
        await self._until(
            f"{name} to be let in again", lambda: not self._fenced() and self._is_ready(GROUP)
        )

    def _noted(self, note: str) -> list[str]:
        """Pods that were made of a template with a note."""
        return [
            one["metadata"]["name"]
            for one in self._pods()
            if (one["metadata"].get("annotations") or {}).get(NOTE) == note
        ]

    def _fenced(self) -> tuple[int, ...]:
        group = self._group()
        return () if group is None else tuple(map(int, group.fenced))

    def _stands_aside(self, name: str) -> bool:
        core = self._core(name)
        return core is not None and core.role is Role.FENCED

    def _end_of(self, name: str) -> int | None:
        core = self._core(name)
        return None if core is None else int(core.log.end)

    def _core(self, name: str) -> Any:
        node = next((one for one in self._cluster.brokers if one.name == name), None)
        group = None if node is None else self._cluster.group_of(node)
        return None if group is None else group.core

    def _group(self) -> Any:
        """What the controllers know of the watched group; None for nothing."""
        state = self._state()
        return None if state is None else state.groups.get((CLUSTER, GROUP))

    # ---- scale

    async def _scale(self) -> None:
        """One more, and one fewer again."""
        cluster = self._cluster
        for change in (1, -1):
            cluster.replicas += change
            self._patch(GROUP, {"replicas": cluster.replicas})
            await self._until(
                f"{GROUP} to have {cluster.replicas} replicas",
                lambda: self._is_ready(GROUP) and len(self._ids()) == cluster.replicas,
            )

    # ---- minimum

    async def _raise_minimum(self, rng: Random) -> None:
        """To all replicas, while one of them is fenced; and back."""
        cluster = self._cluster
        ordinal = rng.randrange(cluster.replicas)
        self._patch(GROUP, {"fenced": [ordinal]})
        await self._until("one to be fenced", lambda: bool(self._fenced()))
        wish = cluster.replicas
        self._patch(GROUP, {"replication": {"minInSyncReplicas": wish}})
        stays = f"minInSyncReplicas stays {cluster.min_in_sync}"
        await self._until(
            "a minimum that nobody reaches to be told",
            lambda: any(stays in one["message"] for one in self._conditions()),
        )
        acks = self._watch.acks
        await self._until("sends to go on meanwhile", lambda: self._watch.acks > acks + MORE)
        self._patch(GROUP, {"fenced": None})
        await self._until(
            "the minimum to rise",
            lambda: (
                self._group().declaration.min_in_sync_replicas == wish and self._is_ready(GROUP)
            ),
        )
        self._patch(GROUP, {"replication": {"minInSyncReplicas": cluster.min_in_sync}})

    # ---- forgotten

    async def _must_not_forget(self, rng: Random) -> None:
        """Raises Violation: somebody is struck who cannot be missed."""
        known = [int(member.broker_id) for member in self._group().members]
        for broker_id in (NOBODY, rng.choice(known)):
            state, message = await self._request_to_forget(broker_id)
            if state != "Refused":
                raise Violation(f"forgotten: {broker_id} of {known}: {state}, {message}")
        used = self._status(GROUP)["forget"]["id"]
        self._patch(GROUP, {"forget": {"id": used, "brokerId": NOBODY + 1}})
        await self._until(
            "an id to be used up",
            lambda: "used up" in (self._status(GROUP).get("forget") or {}).get("message", ""),
        )

    async def _request_to_forget(self, broker_id: int) -> tuple[str, str]:
        """State and message of a new request, once it is final."""
        self._requests += 1
        request = f"request-{self._requests}"
        self._patch(GROUP, {"forget": {"id": request, "brokerId": broker_id}})

        def outcome() -> dict[str, Any]:
            found = self._status(GROUP).get("forget") or {}
            is_final = found.get("id") == request and found["state"] != "InProgress"
            return found if is_final else {}

        await self._until(f"an answer whether {broker_id} is forgotten", lambda: bool(outcome()))
        found = outcome()
        return found["state"], found["message"]

    async def _lose_and_forget(self, rng: Random) -> None:
        """A volume goes, and its replica comes back as another member."""
        cluster = self._cluster
        await self._until(
            "a volume that may go", lambda: any(map(cluster.may_lose, cluster.brokers))
        )
        node = rng.choice([one for one in cluster.brokers if cluster.may_lose(one)])
        before = {int(member.broker_id) for member in self._group().members}
        claim = f"data-{node.name}"
        claims = {one["metadata"]["name"]: one for one in cluster.objects("persistentvolumeclaims")}
        cluster.disposable.add(claims[claim]["spec"]["volumeName"])
        cluster.remove("persistentvolumeclaims", claim, group="")
        cluster.delete_pod(node.name)
        await self._until(
            f"{node.name} to come back as another member or to be missed",
            lambda: bool(self._lost() or self._ids() - before),
        )
        lost = self._lost()
        if lost:
            state, message = await self._request_to_forget(lost[0])
            cluster.world.count(f"forget-{state}")
            if state == "Completed" and lost[0] in self._ids():
                raise Violation(f"forgotten: {lost[0]} is said to be, and is there: {message}")
        await self._until(
            "the lost member to be struck",
            lambda: len(self._ids()) == cluster.replicas and bool(self._ids() - before),
        )

    def _ids(self) -> set[int]:
        return {int(member.broker_id) for member in self._group().members}

    def _lost(self) -> list[int]:
        """Members without a sign of life, as people read it."""
        members = self._status(GROUP).get("members") or ()
        return [one["brokerId"] for one in members if one["state"] == "Lost"]

    # ---- wrong

    async def _mistake_a_setting(self) -> None:
        """Raises Violation: more than one replica pays for it, or nobody is told."""
        cluster = self._cluster
        before = self._workload()["metadata"]["generation"]
        config = self._resource(GROUP)["spec"]["config"]  # type: ignore[index]
        for setting, value in MISTAKES:
            self._patch(GROUP, {"config": {setting: value}})
            await self._until(f"{setting} {value} to be refused", partial(self._refuses, setting))
            self._patch(GROUP, {"config": {setting: config.get(setting)}})
        self._patch(GROUP, {"config": {STRANGE: "1"}})
        if self._workload()["metadata"]["generation"] != before:
            raise Violation("wrong: what was refused has changed the pods")
        unchecked = {names.ANNOTATION_UNCHECKED: "true"}
        cluster.change("brokergroups", GROUP, {"metadata": {"annotations": unchecked}})
        await self._until("the words of a crash", lambda: STRANGE in self._told("Progressing"))
        acks = self._watch.acks
        for _ in range(10):
            await asyncio.sleep(LOOK_S)
            down = [one["metadata"]["name"] for one in self._pods() if not is_ready(one)]
            if len(down) > 1:
                raise Violation(f"wrong: one setting takes {down}")
        await self._until("others to go on", lambda: self._watch.acks > acks)
        if (self._condition(GROUP, "Progressing") or ("", ""))[1] != Reason.POD_CRASHING:
            raise Violation(f"wrong: a process ends again and again: {self._status(GROUP)}")
        cluster.change(
            "brokergroups", GROUP, {"metadata": {"annotations": dict.fromkeys(unchecked)}}
        )
        self._patch(GROUP, {"config": {STRANGE: None}})

    def _refuses(self, setting: str) -> bool:
        is_refused = self._condition(GROUP, "Accepted") == ("False", Reason.INVALID_SPEC)
        return is_refused and setting in self._told("Accepted")

    def _told(self, kind: str) -> str:
        """The message of a condition of the present generation."""
        found = (str(one["message"]) for one in self._conditions() if one["type"] == kind)
        return next(found, "")

    def _workload(self) -> dict[str, Any]:
        found = self._cluster.objects("statefulsets", "apps")
        return next(one for one in found if one["metadata"]["name"] == BROKERS)

    def _pods(self) -> list[dict[str, Any]]:
        found = self._cluster.objects("pods")
        return [one for one in found if one["metadata"]["name"].startswith(f"{BROKERS}-")]

    # ---- policy

    async def _forbid(self, rng: Random) -> None:
        """Raises Violation: pods go for what is not allowed."""
        cluster, policies = self._cluster, self._cluster.unkind.policies
        note = f"{rng.getrandbits(32):x}"
        wishes: dict[str, dict[str, Any]] = {
            "statefulsets": {"template": _template(note)},
            "networkpolicies": {
                "networkPolicy": {"clientsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
            },
        }
        for plural in rng.sample(sorted(wishes), len(wishes)):
            policies[plural, BROKERS] = POLICY
            self._patch(GROUP, wishes[plural])
            await self._must_wait(note)
            del policies[plural, BROKERS]
            await self._until(
                "what is allowed now to be done",
                lambda: (
                    (self._condition(GROUP, "Accepted") or ("",))[0] == "True"
                    and self._is_ready(GROUP)
                ),
            )
            cluster.world.count(f"policy-{plural}")
        if len(self._noted(note)) != len(self._pods()):
            raise Violation(f"policy: {self._noted(note)} have what is allowed now")
        self._patch(GROUP, {"template": None})

    async def _must_wait(self, note: str) -> None:
        """Raises Violation: a pod has what is not allowed."""
        await self._until("a refusal to be told", lambda: POLICY in self._told("Accepted"))
        if self._condition(GROUP, "Accepted") != ("False", Reason.API_REFUSED):
            raise Violation(f"policy: {self._condition(GROUP, 'Accepted')}")
        before = set(self._noted(note))
        for _ in range(10):
            await asyncio.sleep(LOOK_S)
            if set(self._noted(note)) - before:
                raise Violation(f"policy: {self._noted(note)} have what is not allowed")


def _template(note: str) -> dict[str, Any]:
    """More for the pods, with secrets where people leave them lie."""
    return {
        "metadata": {
            "annotations": {NOTE: note, "origin": f"https://me:{IN_URL}@example.org/", "key": KEY}
        },
        "spec": {
            "container": {
                "env": [{"name": "DB_PASSWORD", "value": PASSWORD}],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                "startupProbe": {"periodSeconds": 1, "failureThreshold": 60},
                "livenessProbe": {"periodSeconds": 5},
            },
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }
