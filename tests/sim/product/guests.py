"""People who make broker groups beside the one that is watched, change them, and delete them.

What cannot be meant is refused: by the API server, and then nothing is there; or by the operator,
which says so and builds nothing. A guest that was made comes to be Ready. What was acknowledged in
it is there after every change (``guest_changes``), a shrink and a growth among them.

A guest that was deleted leaves nothing that it owned, and nobody is sent there. With Retain its
claims stay, the controllers keep what they know of it, and a resource of the same name has all of
its messages. With Delete its claims and the controllers' record go, and a resource of the same name
is a new group. Its neighbours' objects are the same as before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gantry_broker.host.settings import REMOTING_PORT
from gantry_cli.client.session import session
from gantry_local.apiserver.errors import StatusError
from gantry_operator import names
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_properties, decode_records
from gantry_protocol.records.properties import UNIQ_KEY
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, SEGMENT_BYTES
from sim.product.guest_changes import CLASSES, DEEDS, GuestChanges
from sim.product.line import _text, send_ext, topic_ext
from sim.product.operated import API
from sim.product.operated_faults import NAMESPACE
from sim.product.people import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from gantry_cli.client.session import Session
    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Node
    from sim.product.operated import OperatedCluster

GROUP_KIND = ("mq.gantry.dev", "brokergroups")
TOPIC = "guests"
WITHIN_S = 2.0
MESSAGES = 5
SHARDED = "sharded"  # groups that others make and delete begin so
NEIGHBOURS = (("statefulsets", "apps"), ("persistentvolumeclaims", ""), ("services", ""))

MEANINGLESS: tuple[dict[str, Any], ...] = (  # the API server refuses these
    {"replicas": 12},
    {"replicas": 2, "replication": {"minInSyncReplicas": 3}},
    {"replicas": 3, "storage": {"type": "EmptyDir"}},
    {"tier": {"url": "s3://bucket?key=secret"}},
    {"tier": {"url": "s3://bucket"}, "retention": {"hours": 1}},
    {"pipeline": {"audit": {"schedule": "@daily"}}},
    {"nothing": True},
)
UNWISE: tuple[tuple[dict[str, Any], str], ...] = (  # and the operator these
    ({"controllerRef": {"name": "nobody"}}, "ControllerGroupNotFound"),
    ({"tier": {"url": "file:///x"}}, "InvalidSpec"),
    ({"config": {"no_such_setting": "1"}}, "InvalidSpec"),
    ({"config": {"log_segment_bytes": "few"}}, "InvalidSpec"),
)
EXTRAS: tuple[dict[str, Any], ...] = (
    {},
    {"clients": {"route": "Master", "door": {"enabled": False}}},
    {"clients": {"route": "Pod", "door": {"enabled": False}}},
    {"retention": {"hours": 1, "bytes": 2**20, "whenFull": "Refuse"}},
    {
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
        "template": {
            "metadata": {"labels": {"team": "guests"}},
            "spec": {
                "tolerations": [{"key": "guests", "operator": "Exists"}],
                "priorityClassName": "guests",
                "affinity": {"nodeAffinity": {}},
            },
        },
        "networkPolicy": {
            "clientsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "guests"}}}],
        },
    },
    {
        "template": {
            "spec": {
                "container": {
                    "env": [{"name": "TEAM", "value": "guests"}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "startupProbe": {"periodSeconds": 1, "failureThreshold": 60},
                    "livenessProbe": {"periodSeconds": 5},
                },
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "securityContext": {"runAsUser": 5000, "supplementalGroups": [1]},
                "terminationGracePeriodSeconds": 40,
                "schedulerName": "guests",
            },
        },
    },
    {
        "tier": {
            "url": "s3://bucket/guests",
            "endpoint": "http://10.0.0.9:9000",
            "region": "here",
            "credentialsSecret": {"name": "keys"},
            "lingerMs": 200,
        },
        "pipeline": {"audit": {"schedule": "0 3 * * *"}},
    },
)


class Guests(GuestChanges):
    """See the module.

    Attributes:
        people: the name of the client.
        kind: of groups; their names begin so, and they are counted so.
    """

    unsettled = "guests are still changed"
    plural = "brokergroups"
    people = "people"
    kind = "guest"

    def __init__(self, cluster: OperatedCluster) -> None:
        super().__init__(cluster)
        self._kept: dict[str, tuple[str, int]] = {}  # acknowledged, in the present guest
        self._possible: set[str] = set()  # that were sent to it
        self._number = 0
        self._is_tried = False  # whatever people do, they have done

    def start(self) -> None:
        """Begin."""
        self._cluster.client(self.people, self._live).boot()

    async def _live(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            while not self._stops:
                await asyncio.sleep(rng.random())
                if not self._cluster.is_set_up:
                    continue
                self._number += 1
                await self._one(client, f"{self.kind}-{self._number}", rng)
                self._cluster.world.count(self.kind)
        self._busy -= 1

    async def _one(self, client: Session, name: str, rng: Random) -> None:
        """One guest, from the first mistake to its end."""
        if rng.random() < 0.5:
            self._must_be_refused(name, rng)
        if rng.random() < 0.4:
            await self._must_not_be_built(name, rng)
        deletes = rng.random() < 0.5
        spec = _spec(rng, deletes, may_upload=not self._cluster.uploads)
        await self._make(name, spec)
        self._kept, self._possible = {}, set()
        await self._send(client, name, rng)
        for deed in self._next_deeds(rng):
            goes_on = await self._change(deed, name, spec, rng)
            await self._send(client, name, rng)
            if not goes_on:
                break
        await self._read(client, name)
        before = self._neighbours(name)
        await self._delete(name, deletes=deletes)
        gone = before.items() - self._neighbours(name).items()
        if gone:
            raise Violation(f"{name} was deleted, and of its neighbours went {gone}")
        if rng.random() < 0.6:
            if deletes:
                self._kept = {}
            # Kubernetes removes the claims that a set's pods have used while the wish was Delete.
            unused = {
                claim: volume
                for claim, volume in self._claims(name).items()
                if int(claim.rpartition("-")[2]) >= spec["replicas"]
            }
            await self._make(name, spec)
            await self._read(client, name)
            self._patch(name, {"storage": {"whenDeleted": "Delete"}})
            await self._until(f"{name} to know of it", lambda: self._is_ready(name))
            await self._delete(name, deletes=True, but=unused)

    def _next_deeds(self, rng: Random) -> list[str]:
        """What people do with a guest: once all of it, then a part."""
        self._is_tried, was_tried = True, self._is_tried
        return rng.sample(DEEDS, rng.randint(1, 2) if was_tried else len(DEEDS))

    # ---- what cannot be meant

    def _must_be_refused(self, name: str, rng: Random) -> None:
        """Raises Violation: the API server takes what cannot be meant."""
        spec = rng.choice(MEANINGLESS)
        try:
            self._create(name, spec)
        except StatusError:
            self._cluster.world.count("guest-meaningless")
        else:
            raise Violation(f"the API server takes {spec}")

    async def _must_not_be_built(self, name: str, rng: Random) -> None:
        """The operator says what is wrong, builds nothing, and lets it go."""
        spec, reason = rng.choice(UNWISE)
        uid = self._create(name, {"replicas": 1, **spec})
        await self._until(
            f"{name} to be refused as {reason}",
            lambda: self._condition(name, "Accepted") == ("False", reason),
        )
        if self._owned(uid):
            raise Violation(f"{name} is refused, and there are {self._owned(uid)}")
        self._cluster.world.count("guest-unwise")
        self._cluster.remove("brokergroups", name)
        await self._until(f"{name} to go", lambda: self._resource(name) is None)

    # ---- life

    async def _make(self, name: str, spec: dict[str, Any]) -> None:
        self._create(name, spec)
        await self._until(f"{name} to be Ready", lambda: self._is_ready(name))

    async def _delete(
        self, name: str, *, deletes: bool, but: Mapping[str, str] | None = None
    ) -> None:
        """Delete it; what it leaves is as the wish says. Raises Violation.

        Args:
            name: of the guest.
            deletes: its claims go.
            but: these stay, with their volumes.
        """
        stays = dict(but or {})
        resource = self._resource(name)
        assert resource is not None, "only people delete guests"
        uid, claims = resource["metadata"]["uid"], self._claims(name)
        if deletes:
            self._cluster.disposable |= set(claims.values()) - set(stays.values())
        self._cluster.remove("brokergroups", name)
        await self._until(f"{name} to go", lambda: self._resource(name) is None)
        await self._until(f"all of {name} to go", lambda: not self._owned(uid))
        if deletes:
            await self._until(f"the claims of {name} to go", lambda: self._claims(name) == stays)
            await self._until(f"{name} to be forgotten", lambda: self._record(name) is None)
        else:
            await self._until(f"{name} to be retired", lambda: self._record(name) == "retired")
            if self._claims(name) != claims:
                raise Violation(f"{name} had {claims}, left {self._claims(name)}")
        self._cluster.world.count("guest-deleted" if deletes else "guest-retained")

    # ---- messages

    async def _send(self, client: Session, name: str, rng: Random) -> None:
        """A few more messages, until that many are acknowledged."""
        goal = len(self._kept) + MESSAGES
        while len(self._kept) < goal:
            await self._ask(client, name, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
            key = f"{rng.getrandbits(128):032X}"
            self._possible.add(key)
            answer = await self._ask(
                client, name, RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, key), b"x"
            )
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._kept[key] = (name, int((answer.ext or {})["queueOffset"]))

    async def _read(self, client: Session, name: str) -> None:
        """Everything acknowledged is at its place, and nothing else. Raises Violation."""
        found: dict[str, int] = {}
        self.waits_for = f"{name} to be read"
        while True:
            code, where = RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}
            bound = await self._ask(client, name, code, where)
            if bound is not None and bound.code == ResponseCode.TOPIC_NOT_EXIST:
                break
            if bound is None or bound.code != ResponseCode.SUCCESS:
                continue
            if len(found) >= int((bound.ext or {})["offset"]):
                break
            header = PullMessageRequestHeader(
                "people", TOPIC, 0, len(found), 32, 4, 0, 0, 0, "*", "TAG"
            )
            answer = await self._ask(client, name, RequestCode.PULL_MESSAGE, to_ext(header))
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                for record in decode_records(answer.body):
                    key = decode_properties(record.properties)[UNIQ_KEY]
                    found[key] = record.queue_offset
        for key, (_, place) in self._kept.items():
            if found.get(key) != place:
                raise Violation(f"{key} was acknowledged at {place} of {name}: {found.get(key)}")
        if not self._kept and found:
            raise Violation(f"{name} is new, and has {len(found)} messages")
        if found.keys() - self._possible:
            raise Violation(f"{name} has messages that nobody sent")

    async def _ask(
        self, client: Session, name: str, code: int, ext: Any, body: bytes = b""
    ) -> RemotingCommand | None:
        """The answer of the guest's master; None if there is none."""
        master = self._master(name)
        if master is None:
            await asyncio.sleep(LOOK_S)
            return None
        is_shard = names.resource_of(name) != name
        port = names.shard_port(name) if is_shard else REMOTING_PORT
        address = f"{master.machine.address}:{port}"
        texts = {key: _text(value) for key, value in ext.items()}
        try:
            answer = await client.calls.call(address, request(code, texts, body), WITHIN_S)
        except GantryError:
            answer = None
        await asyncio.sleep(0.01 if answer is not None and not answer.code else LOOK_S)
        return answer

    def _master(self, name: str) -> Node | None:
        serving = []
        statefulset = names.broker_statefulset(names.resource_of(name))
        for node in self._cluster.guests.get(statefulset, ()):
            group = self._cluster.member_of(node, name)
            if group is not None and group.core is not None and group.core.serving is not None:
                serving.append((int(group.core.serving.epoch), node))
        return max(serving, key=lambda pair: pair[0])[1] if serving else None

    # ---- the API server, and what the controllers know

    def _create(self, name: str, spec: dict[str, Any]) -> str:
        """Its uid. Raises StatusError."""
        manifest = {
            "apiVersion": API,
            "kind": "BrokerGroup",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "controllerRef": {"name": CLUSTER},
                "storage": {"size": "1Gi"},
                "clients": {"door": {"enabled": False}},
                **spec,
            },
        }
        self._cluster.create(*GROUP_KIND, manifest)
        resource = self._resource(name)
        assert resource is not None
        return str(resource["metadata"]["uid"])

    def _claims(self, name: str) -> dict[str, str]:
        """The volumes of its claims."""
        return {
            obj["metadata"]["name"]: (obj.get("spec") or {}).get("volumeName", "")
            for obj in self._of("persistentvolumeclaims", name)
        }

    def _neighbours(self, name: str) -> dict[str, str]:
        """The uids of others' objects, but of pods, which come and go."""
        begin = names.broker_statefulset(name)
        return {
            f"{plural} {obj['metadata']['name']}": obj["metadata"]["uid"]
            for plural, group in (
                ("statefulsets", "apps"),
                ("persistentvolumeclaims", ""),
                ("services", ""),
            )
            for obj in self._cluster.objects(plural, group)
            if f"{begin}-" not in f"{obj['metadata']['name']}-"
            and not obj["metadata"]["name"].startswith(name)
            and not obj["metadata"]["name"].endswith("-front")  # others make them and delete them
            and SHARDED not in obj["metadata"]["name"]
        }

    def _record(self, name: str) -> str | None:
        """What the controllers know of it; None for nothing."""
        newest = self._state()
        if newest is None:
            return "unknown"
        group = newest.groups.get((CLUSTER, name))
        if group is None or group.removed:
            return None
        return "retired" if group.retired else "known"


def _spec(rng: Random, deletes: bool, *, may_upload: bool) -> dict[str, Any]:
    """What people wish for."""
    extras = [one for one in EXTRAS if may_upload or "tier" not in one]
    replicas = rng.choice([1, 2, 2])
    kind = rng.choice(CLASSES)
    storage = {"size": "1Gi", "whenDeleted": "Delete" if deletes else "Retain"}
    return {
        "replicas": replicas,
        "replication": {"minInSyncReplicas": rng.randint(1, min(2, replicas))},
        "config": {"log_segment_bytes": str(SEGMENT_BYTES), "disk_spare_bytes": "0"},
        **rng.choice(extras),
        "storage": storage | ({} if kind is None else {"className": kind}),
    }
