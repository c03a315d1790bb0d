"""A stand-in quorum over a pretend cluster: every Ready broker pod is a live member in sync.

It keeps what the operator declares, elects when the master's pod goes, and streams changes, so that
the operator's rules run against a world that reacts to them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from gantry_local.apiserver.store import Event
from gantry_operator import names
from gantry_operator.plan.observed import pod_view
from support.metadata_double import ROUTES, MetadataDouble
from support.pretend_cluster import PretendCluster

Json = dict[str, Any]


def _shard(group: str) -> str:
    """The name of a shard; empty for a group that is none."""
    return "" if names.resource_of(group) == group else group


def _founders(pod: Json | None) -> int:
    """The number of members that a pod of controllers was told of."""
    if pod is None:
        return 3
    (container,) = [c for c in pod["spec"]["containers"] if c["name"] == names.CONTROLLER]
    env = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return len(env["GANTRY_PEERS"].split(","))


class FakeQuorum:
    """One HTTP server that leads every quorum."""

    def __init__(self, cluster: PretendCluster) -> None:
        self._cluster = cluster
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.groups: dict[str, Json] = {}
        self.metadata = MetadataDouble()
        self.fronts: Json | None = None
        self.on_fronts: Callable[[], None] = lambda: None  # before clients are led elsewhere
        self.lagging: set[str] = set()  # pods that are not in sync, or "pod of shard"
        self.unread: dict[str, int] = {}  # messages that keep a drain waiting, by group
        self._lost: set[str] = set()
        self.log: list[str] = []  # what the operator asked for, in order
        self.leaderless = False
        self.voters: set[int] = set()  # those that the first pod names found the quorum
        self.learners: set[int] = set()
        self.leader = 1
        self.term = 2
        self.mute = False  # the stream says that it lives, and nothing else
        self.silent: set[int] = set()  # members that the leader does not hear
        self.frozen = asyncio.Event()  # set: as after SIGSTOP, connections open and nothing comes
        self._pods: dict[tuple[str, str], dict[str, Json]] = {}
        self._changed: set[str] = set()  # groups
        self._touched: set[str] = set()  # resources whose pods changed
        cluster.registry.store.subscribe(self._note, name="quorum double")

    def _note(self, event: Event) -> None:
        """Keeps pods by group, so that a thousand groups cost no more than their changes."""
        if event.record.resource != ("", "pods"):
            return
        meta = event.record.obj["metadata"]
        labels = meta.get("labels", {})
        group = labels.get(names.LABEL_COMPONENT, ""), labels.get(names.LABEL_INSTANCE, "")
        pods = self._pods.setdefault(group, {})
        if event.type == "DELETED":
            pods.pop(meta["name"], None)
        else:
            pods[meta["name"]] = event.record.obj
        self._touched.add(group[1])

    async def __aenter__(self) -> FakeQuorum:
        app = web.Application()
        app.router.add_route("*", "/v1/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await self.metadata.start()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()
        await self.metadata.stop()

    def pods(self, component: str, instance: str) -> list[Json]:
        found = self._pods.get((component, instance), {})
        return [found[name] for name in sorted(found)]

    def view(self, name: str) -> Json:
        """The group as it is now; elects if that is needed."""
        group = self.groups[name]
        pods = self.pods(names.BROKER, names.resource_of(name))
        members = [self._member(pod, name) for pod in pods if pod_view(pod).hosts(_shard(name))]
        members += group.get("gone", ())
        in_sync = [m["brokerId"] for m in members if m["alive"] and m["inSync"]]
        if group["masterBrokerId"] not in in_sync:
            group["masterBrokerId"] = min(in_sync, default=None)
            if in_sync:
                group["masterEpoch"] += 1
        shown = {key: value for key, value in group.items() if key != "fenced"}
        return shown | {"members": members, "syncStateSet": in_sync, "syncStateSetEpoch": 1}

    def _member(self, pod: Json, group: str) -> Json:
        conditions = pod.get("status", {}).get("conditions", ())
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        name = pod["metadata"]["name"]
        drain = None
        if self.groups[group].get("drainBeganMs") is not None:
            unread = self.unread.get(group, 0)
            drain = {"done": not unread, "unread": unread, "parked": 0, "transactions": 0}
        return {
            "drain": drain,
            "brokerId": (names.ordinal(name) or 0) + 1,
            "address": f"{pod['status'].get('podIP', '0.0.0.0')}:10911" if "status" in pod else "",
            "podUid": pod["metadata"]["uid"],
            "alive": ready
            and name not in self._lost
            and "deletionTimestamp" not in pod["metadata"],
            "inSync": self.lagging.isdisjoint((name, f"{name} of {group}"))
            and (names.ordinal(name) or 0) + 1 not in self._fenced(group),
            "fenced": (names.ordinal(name) or 0) + 1 in self._fenced(group),
        }

    def _fenced(self, group: str) -> set[int]:
        fenced: set[int] = self.groups[group].setdefault("fenced", set())
        return fenced

    def lose(self, group: str, *pods: str) -> None:
        """These pods, and no others, give no sign of life, whatever their kubelet says."""
        self._lost = set(pods)
        self._changed.add(group)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.frozen.is_set():
            await asyncio.sleep(3600)
        if self.leaderless:
            answer = {"error": "NOT_LEADER", "message": "no leader", "leader": None}
            return web.json_response(answer, status=421)
        data = await request.read()
        body: Json = json.loads(data) if data else {}
        path = request.match_info["path"].split("/")
        if path[0] == "clusters" and path[2] in ROUTES:
            return await self.metadata.serve(request)
        if path[0] == "quorum" and path[1:]:
            return self._change(request.method, path[1:], body)
        return await self._answer(request, path, body)

    async def _answer(
        self, request: web.Request, path: list[str], body: Json
    ) -> web.StreamResponse:
        match request.method, path:
            case "GET", ["quorum"]:
                return web.json_response(self._quorum())
            case "GET", ["watch"]:
                return await self._watch(request)
            case "PUT", ["groups", cluster, name]:
                self._declare(cluster, name, body)
                return web.json_response(self.view(name))
            case _, ["groups", _, name, *_] if name not in self.groups:
                return web.json_response({"error": "NOT_FOUND", "message": name}, status=404)
            case "GET", ["groups", _, name]:
                return web.json_response(self.view(name))
            case "DELETE", ["groups", cluster, name]:
                del self.groups[name]
                self.metadata.forget(cluster, name)
                self.log.append(f"forget {name} {request.query['uid']}")
                return web.Response(status=204)
            case "POST", ["groups", _, name, "retire"]:
                self.groups[name]["retired"] = True
                self.log.append(f"retire {name} {body['uid']}")
                return web.json_response(self.view(name))
            case (("PUT" | "DELETE"), ["groups", _, name, "drain"]):
                began = int(time.time() * 1000) if request.method == "PUT" else None
                self.groups[name]["drainBeganMs"] = began
                self._changed.add(name)
                self.log.append(f"{'drain' if began else 'end drain of'} {name}")
                return web.json_response(self.view(name))
            case (("POST" | "PUT"), ["groups", _, name, ("forget" | "fence")]):
                return self._member_changed(name, body)
            case "POST", ["groups", _, name, "elect"]:
                return self._elect(name, body)
            case _, ["clusters", _, "fronts", *name]:
                return self._lead(request.method, "".join(name), body)
        return web.json_response({"error": "UNKNOWN", "message": request.path}, status=400)

    def _member_changed(self, name: str, body: Json) -> web.Response:
        """Forgotten, or, if the request says that, fenced or let in again."""
        broker_id, on = body["brokerId"], body.get("fenced")
        if on is None:
            gone = self.groups[name].get("gone", [])
            self.groups[name]["gone"] = [m for m in gone if m["brokerId"] != broker_id]
            self.log.append(f"forget {name} {broker_id}")
        else:
            (set.add if on else set.discard)(self._fenced(name), broker_id)
            self.log.append(f"{'fence' if on else 'unfence'} {broker_id}")
        self._changed.add(name)
        return web.json_response(self.view(name))

    def _declare(self, cluster: str, name: str, wish: Json) -> None:
        old = self.groups.get(name, {"masterBrokerId": None, "masterEpoch": 0})
        wish = {"listeners": {}, "preferred": []} | wish
        self.groups[name] = old | wish | {"cluster": cluster, "name": name, "retired": False}
        self.groups[name]["hasOthers"] = True
        self.metadata.declare(cluster, name)
        self._changed.add(name)
        self.log.append(f"declare {name} {wish['replicas']} {wish['minInSyncReplicas']}")

    def _lead(self, method: str, name: str, body: Json) -> web.Response:
        """Where clients are led, of the one cluster that there is."""
        if method != "GET":
            self.on_fronts()
        if method == "PUT":
            if self.fronts is not None and self.fronts["name"] != name:
                return web.json_response({"error": "TAKEN", "message": "others"}, status=409)
            self.fronts = body | {"name": name}
            facts = (body["address"], body["firstPort"], body["ports"])
            self.log.append(f"declare fronts {name} {' '.join(map(str, facts))}")
        elif method == "DELETE" and self.fronts is not None and self.fronts["name"] == name:
            self.fronts = None
            self.log.append(f"remove fronts {name}")
        groups = [name for name, group in sorted(self.groups.items()) if not group.get("retired")]
        told = [{"group": name, "index": index} for index, name in enumerate(groups)]
        declared = [] if self.fronts is None else [self.fronts]
        return web.json_response({"fronts": declared, "groups": told})

    def _elect(self, name: str, body: Json) -> web.Response:
        view = self.view(name)
        if body["masterEpoch"] != view["masterEpoch"]:
            return web.json_response({"error": "EPOCH", "message": "changed"}, status=409)
        self.groups[name]["masterBrokerId"] = body["brokerId"]
        self.groups[name]["masterEpoch"] += 1
        self._changed.add(name)
        self.log.append(f"elect {name} {body['brokerId']}")
        return web.json_response(self.view(name))

    def _quorum(self) -> Json:
        pods = self.pods(names.CONTROLLER, "gantry")
        if not self.voters:
            self.voters = set(range(1, _founders(pods[0] if pods else None) + 1))
        name = "gantry-controller-{}".format
        there = {(names.ordinal(pod["metadata"]["name"]) or 0) + 1 for pod in pods}
        living = ((self.voters | self.learners) & (there | {1, 2, 3})) - self.silent
        if self.leader not in self.voters and living & self.voters:
            self.leader, self.term = min(living & self.voters), self.term + 1
        peers = [
            {
                "id": n,
                "name": name(n - 1),
                "address": "",
                "role": "voter" if n in self.voters else "learner",
                "matchIndex": 9 if n in living else None,
                "lastContactMs": 1 if n in living else None,
            }
            for n in sorted(self.voters | self.learners)
        ]
        return {
            "clusterUid": "x",
            "nodeId": self.leader,
            "name": name(self.leader - 1),
            "term": self.term,
            "role": "leader",
            "leaderId": self.leader,
            "commitIndex": 9,
            "appliedIndex": 9,
            "peers": peers,
        }

    def _change(self, method: str, path: list[str], body: Json) -> web.Response:
        """Members change as the leader of a real quorum lets them."""
        match method, path:
            case "POST", ["transfer"] if body["target"] in self.voters:
                self.leader, self.term = body["target"], self.term + 1
                self.log.append(f"transfer {self.leader}")
            case "POST", ["members"] if body["node"] not in self.voters | self.learners:
                self.learners.add(body["node"])
                self.log.append(f"add {body['node']} {body['address']}")
            case "POST", ["members", number, "promote"] if int(number) in self.learners:
                self.learners.remove(int(number))
                self.voters.add(int(number))
                self.log.append(f"promote {number}")
            case "DELETE", ["members", number] if int(number) in self.voters | self.learners:
                self.voters.discard(int(number))
                self.learners.discard(int(number))
                self.log.append(f"remove {number}")
            case _:
                answer = {"error": "REFUSED", "message": f"{method} {path} {body}"}
                return web.json_response(answer, status=409)
        return web.json_response(self._quorum())

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        try:
            await response.prepare(request)
        except ConnectionResetError:
            return response
        sent: dict[str, str] = {}
        first = True
        while not self.frozen.is_set():
            lines = ['{"index": 1, "heartbeat": true}']
            changed = [] if self.mute else self._news()  # there is one reader
            for name in list(self.groups) if first else changed:
                view = self.view(name)
                event = {
                    "index": 1,
                    "cluster": view["cluster"],
                    "group": name,
                    "masterBrokerId": view["masterBrokerId"],
                    "masterEpoch": view["masterEpoch"],
                    "syncStateSet": view["syncStateSet"],
                    "syncStateSetEpoch": view["syncStateSetEpoch"],
                    "members": view["members"],
                }
                text = json.dumps(event)
                if sent.get(name) != text:
                    sent[name] = text
                    lines.append(text)
            try:
                await response.write("".join(line + "\n" for line in lines).encode())
            except ConnectionResetError:
                return response
            first = False
            await asyncio.sleep(0.05)
        await asyncio.sleep(3600)
        return response

    def _news(self) -> list[str]:
        """The groups that changed since the last time."""
        changed, touched = self._changed, self._touched
        self._changed, self._touched = set(), set()
        found = changed & self.groups.keys()
        if touched:
            found |= {name for name in self.groups if names.resource_of(name) in touched}
        return sorted(found)
