"""Runs in which a group comes to have no master, and a person says how it goes on.

What the person may do is in ``docs/controllers.md``, "A group without a master". Before that nobody
is elected who lacks what was confirmed, however long it takes; what the person says is refused
while there is a way without a loss, and when it is not what things are.

=========  =====================================================================================
loss       no complete member can return: the furthest that lives is elected, alone in its set,
           and the loss is told as it is. What that member held is there at its place, and nothing
           else of what was acknowledged before
returned   the same, and the complete members return after all: they stop, and keep their volumes
quorum     the controllers lose their volumes: the copies are refused until they are adopted, one
           fewer if one is lost, whether they come before the group is declared or after it;
           nothing acknowledged is missing, nor a topic. One may come late, and take no id that a
           new volume has by then
cleaned    the members are struck off the record: they register anew, and nothing is missing
forgotten  a member that is lost for good is struck; one that lives is not
=========  =====================================================================================
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_broker.member import topic_sync
from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import RemotingError, ResolveError
from gantry_protocol.records import decode_offset_msg_id
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, GROUP, http
from sim.product.kinds import BEGIN_S, PEACE_S, RAISED_SURELY_S, ProductRun
from sim.product.rereader import Rereader
from sim.product.watch import Watch
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.product.cluster import Node
    from sim.product.faults import Fault

MILD = ("cleaned", "forgotten")  # come first: nothing is lost
STORIES = ("loss", "loss", "returned", "quorum", "quorum")
PATH = f"/v1/groups/{CLUSTER}/{GROUP}"
WAIT_S = 8  # in which nobody may be elected
WITHIN_S = 4.0
ON_ITS_WAY_S = 0.5  # at most what a frame takes from a broker to a client
MORE_TOPICS = ["adopted-0", "adopted-1", "adopted-2"]
MORE = 20  # acknowledgements without the member that is left behind


class _Producers(Workload):
    """Producers alone; what they are told is remembered by its place in the log."""

    def start(self) -> None:
        for number in range(self._producers):
            self.cluster.client(f"producer-{number}", self._produce).boot()

    @property
    def is_settled(self) -> bool:
        return not self.sending


class LossRun(ProductRun):
    """A group that comes to have no master, and a person who says how it goes on.

    Attributes:
        offsets: of messages that were acknowledged before the group lost its master.
        mild: all of them are played, in any order, before ``stories``.
        stories: one of them is played.
    """

    mild: Sequence[str] = MILD
    stories: Sequence[str] = STORIES

    def __init__(self, seed: int, schedule: Sequence[Fault] | None = None, **named: Any) -> None:
        super().__init__(seed, schedule or (), **named)
        self.offsets: dict[str, int] = {}
        self._is_lost = False

    def acknowledged(self, key: str, offset_id: str) -> None:
        """See ``Watch.acknowledged``."""
        self._watch.acknowledged(key, offset_id)
        if not self._is_lost:
            self.offsets[key] = decode_offset_msg_id(offset_id)[1]

    def served(self, end: int, group: str) -> None:
        """Nobody consumes."""

    def act(self) -> None:
        """Raises Violation."""
        cluster, rng = self._cluster, self.world.stream("story")
        self._load = _Producers(cluster, self)
        cluster.boot()
        self._load.start()
        self._until("the group stands", lambda: cluster.is_whole and self._watch.acks > 3, BEGIN_S)
        cluster.run(rng.random() * 3)
        end = None
        for story in (*rng.sample(self.mild, len(self.mild)), rng.choice(self.stories)):
            self.world.count(f"story.{story}")
            self._is_lost = False
            end = getattr(self, f"_{story}")(rng)
            if story in self.mild:
                self.recover()
        cluster.is_at_peace = True
        self.recover()
        self._load.stop_sending()
        reader = Rereader(cluster, self._load)
        reader.start()
        reader.stop_sending()
        self._until("all is read", lambda: reader.is_settled and self._load.is_settled)
        self._judge_loss(reader, end)
        reader.judge()
        self._watch.logs.judge()

    def _judge_loss(self, reader: Rereader, end: int | None) -> None:
        """What was acknowledged from ``end`` on is not there. Raises Violation: some of it is."""
        found = {key for key, _ in reader.seen.values()}
        for key, offset in self.offsets.items():
            if end is not None and offset >= end:
                self.world.count("lost")
                self._load.ledger._messages[key].acknowledged_at = None
                if key in found:
                    raise Violation(
                        f"{key} was at {offset}, the log ended at {end}, and it is there"
                    )

    def _until(self, what: str, holds: Callable[[], bool], within_s: float = PEACE_S) -> None:
        if not self._cluster.run(within_s, until=holds):
            raise Violation(f"not within {within_s} s: {what}: {self._view()}")

    # ---- stories

    def _loss(self, rng: Any, *, return_after_all: bool = False) -> int:
        """Returns where the log of the one that is left ends."""
        cluster = self._cluster
        left = self._leave_behind(rng)
        complete = [node for node in cluster.brokers if node is not left]
        cluster.run(RAISED_SURELY_S)
        self._go_down(cluster.brokers)
        if not return_after_all:
            for node in complete:
                node.machine.volume.wipe()
        left.boot()
        self._nobody_is_elected()
        end = int(cluster.group_of(left).core.log.end)
        confirmed = len(self._watch.confirmed)
        self._accept_loss(left, end)
        if return_after_all:
            self._must_stop(complete, confirmed)
        for node in complete:
            node.boot()
        return end

    def _returned(self, rng: Any) -> int:
        return self._loss(rng, return_after_all=True)

    def _quorum(self, rng: Any) -> None:
        """The quorum loses all that it knew; one of the copies may be lost, too."""
        cluster = self._cluster
        lost = rng.choice([None, rng.choice(cluster.brokers)])
        late = self._comes_late(lost)
        self._go_down([*cluster.brokers, *cluster.controllers])
        self._watch.is_over = True
        for node in [*cluster.controllers, *([] if lost is None else [lost])]:
            node.machine.volume.wipe()
        copies = [node for node in cluster.brokers if node not in (lost, late)]
        for node in cluster.controllers:
            node.boot()
        begins = [self._declare_anew, *(node.boot for node in copies)]
        for begin in begins if rng.random() < 0.5 else reversed(begins):
            begin()
        self._until("all copies knock", lambda: len(self._refused()) == len(copies))
        self._nobody_is_elected()
        ids = sorted(self._refused())
        wish = {"brokerIds": ids, "masterEpoch": 0, "acceptMissing": lost is not None}
        self._ask("POST", f"{PATH}/adopt", {**wish, "brokerIds": ids[1:] or [77]}, 409)
        self._ask("POST", f"{PATH}/adopt", {**wish, "masterEpoch": 77}, 409)
        if lost is not None:
            self._ask("POST", f"{PATH}/adopt", {**wish, "acceptMissing": False}, 409)
        self._ask("POST", f"{PATH}/adopt", wish, 200)
        self._watch_anew()
        if late is not None and lost is not None:
            lost.boot()
            self._until("it has an id", lambda: len(self._view()["members"]) > len(ids))
            late.boot()
        self._until("somebody serves", lambda: cluster.master() is not None)
        for node in cluster.brokers:
            node.boot()
        self._until("all are there", lambda: cluster.is_whole)

    def _comes_late(self, lost: Node | None) -> Node | None:
        """A copy that comes only once the others were adopted, where all hold the same.

        The lost one has another volume by then, which may have been given the id of that copy.
        """
        rng = self.world.stream("late")
        if lost is None or len(self._view()["syncStateSet"]) < 3 or rng.random() < 0.5:
            return None
        late: Node = rng.choice([node for node in self._cluster.brokers if node is not lost])
        self.world.count("late copy")
        return late

    def _cleaned(self, rng: Any) -> None:
        """``mqadmin cleanBrokerMetadata`` in an outage of all brokers."""
        cluster = self._cluster
        ids = ";".join(str(one["brokerId"]) for one in self._view()["members"])
        strike = {"brokerName": GROUP, "clusterName": CLUSTER, "brokerControllerIdsToClean": ids}
        refusal = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        self._command(strike, refusal)  # they live
        self._command({**strike, "brokerControllerIdsToClean": "one"}, refusal)
        self._command({**strike, "brokerName": "nobody"}, refusal)
        self._go_down(cluster.brokers)
        cluster.run(3)
        self._command({**strike, "isCleanLivingBroker": "true"}, ResponseCode.SUCCESS)
        if self._view()["members"]:
            raise Violation(f"all were struck: {self._view()}")
        for node in cluster.brokers:
            node.boot()

    def _forgotten(self, rng: Any) -> None:
        """A volume is lost for good, and its member comes back under another id."""
        cluster = self._cluster
        victim = self._leave_behind(rng)
        old = self._id_of(victim)
        living = next(one["brokerId"] for one in self._view()["members"] if one["alive"])
        victim.machine.volume.wipe()
        victim.boot()
        self._until("it is back", lambda: cluster.is_whole)
        self._ask("POST", f"{PATH}/forget", {"brokerId": living}, 409)
        one = self._member(old)
        self._ask("POST", f"{PATH}/forget", {"brokerId": old, "incarnation": "another"}, 409)
        wish = {"brokerId": old, "incarnation": one["incarnation"]}
        self._ask("POST", f"{PATH}/forget", wish, 200)
        if old in {one["brokerId"] for one in self._view()["members"]}:
            raise Violation(f"broker {old} was forgotten: {self._view()}")
        self._ask("POST", f"{PATH}/forget", wish, 200)

    # ---- parts of them

    def _leave_behind(self, rng: Any) -> Node:
        """One member goes, and the others acknowledge more without it."""
        cluster = self._cluster
        left: Node = rng.choice([node for node in cluster.brokers if node is not cluster.master()])
        left.wanted = False
        left.kill()
        self._until("it has left the set", lambda: len(self._view()["syncStateSet"]) == 2)
        acks = self._watch.acks
        self._until("sends are answered", lambda: self._watch.acks > acks + MORE)
        left.wanted = True
        return left

    def _go_down(self, nodes: Sequence[Node]) -> None:
        """All lose their power at once, and get it back once what they had answered has arrived."""
        self._cluster.look()
        for node in nodes:
            node.machine.cut_power()
        self._cluster.run(ON_ITS_WAY_S)
        self._is_lost = True
        for node in nodes:
            node.machine.restore_power()

    def _nobody_is_elected(self) -> None:
        """However long it takes. Raises Violation."""
        cluster = self._cluster
        if cluster.run(WAIT_S, until=lambda: cluster.master() is not None):
            raise Violation(f"{cluster.master()} is elected, and lacks what was confirmed")

    def _accept_loss(self, left: Node, end: int) -> None:
        """The person's word, first some that are refused. Raises Violation: it is told wrongly."""
        view = self._view()
        chosen = self._id_of(left)
        other = next(one["brokerId"] for one in view["members"] if one["brokerId"] != chosen)
        if view["confirmedOffset"] <= end or not view["noMasterReason"]:
            raise Violation(f"the log of {left.name} ends at {end}, and it is not said why: {view}")
        wish = {
            "brokerId": chosen,
            "masterEpoch": view["masterEpoch"],
            "confirmedOffset": view["confirmedOffset"],
        }
        for wrong in ({"brokerId": other}, {"masterEpoch": 0}, {"confirmedOffset": end}):
            self._ask("POST", f"{PATH}/accept-loss", {**wish, **wrong}, 409)
        elect = {"brokerId": chosen, "masterEpoch": view["masterEpoch"]}
        self._ask("POST", f"{PATH}/elect", elect, 409)
        self._watch_anew()
        told = self._ask("POST", f"{PATH}/accept-loss", wish, 200)
        loss = told["loss"]
        if (told["masterBrokerId"], told["syncStateSet"], told["clean"]) != (
            chosen, [chosen], False
        ) or (loss["brokerId"], loss["end"], loss["masterEpoch"]) != (
            chosen, end, view["masterEpoch"] + 1
        ):  # fmt: skip
            raise Violation(f"{left.name}, broker {chosen}, ends at {end}, and is told as {told}")
        self._until("it serves", lambda: self._cluster.master() is left)

    def _must_stop(self, complete: Sequence[Node], confirmed: int) -> None:
        """Who held everything keeps it, and takes no part. Raises Violation."""
        cluster = self._cluster
        self._watch.is_over = True
        for node in complete:
            node.boot()

        def stuck() -> bool:
            groups = [cluster.group_of(node) for node in complete]
            return all(one is not None and one.stuck for one in groups)

        self._until("they stop", stuck)
        cluster.run(WAIT_S)
        for node in complete:
            if len(cluster.logs.read(node, GROUP, 0, confirmed)) < confirmed:
                raise Violation(f"{node.name} holds the only copy of what was lost, and cuts it")
            node.kill()
            node.machine.volume.wipe()
        self._watch_anew()

    def _watch_anew(self) -> None:
        """Another history begins: what was confirmed in the old one counts no more."""
        self._watch.is_over = True
        self._watch = Watch(self._cluster)

    def _declare_anew(self, uid: str = "u1") -> None:
        wish = {
            "uid": uid,
            "replicas": self._cluster.replicas,
            "minInSyncReplicas": self._cluster.min_in_sync,
        }
        self._ask("PUT", PATH, wish, 200)

    # ---- what controllers say

    def _id_of(self, node: Node) -> int:
        address = node.machine.address
        members = self._view()["members"]
        ids = [one["brokerId"] for one in members if one["address"].startswith(f"{address}:")]
        return int(ids[0])

    def _member(self, broker_id: int) -> dict[str, Any]:
        return next(one for one in self._view()["members"] if one["brokerId"] == broker_id)

    def _refused(self) -> list[int]:
        return [int(one["brokerId"]) for one in self._view()["members"] if one.get("refused")]

    def _view(self) -> dict[str, Any]:
        return self._ask("GET", PATH, None, 200)

    def _ask(self, method: str, path: str, body: object, expected: int) -> dict[str, Any]:
        """The answer of whoever gives one that counts. Raises Violation: it is another one."""
        answers: list[tuple[int, bytes]] = []

        async def ask(node: Node) -> None:
            rng = self.world.stream(f"load/{node.name}")
            while not answers:
                address = rng.choice(self._cluster.controllers).machine.address
                try:
                    async with asyncio.timeout(WITHIN_S):
                        status, text = await http(address, method, path, body)
                except (OSError, EOFError):  # TimeoutError is one
                    status, text = 0, b""
                if status not in (0, 421, 429, 503):
                    answers.append((status, text))
                await asyncio.sleep(0.05)

        self._cluster.client(f"person-{len(self._cluster.clients)}", ask).boot()
        if not self._cluster.run(PEACE_S, until=lambda: bool(answers)):
            raise Violation(f"{method} {path} is not answered")
        status, text = answers[0]
        if status != expected:
            raise Violation(f"{method} {path} {body} is answered {status}: {text[:400]!r}")
        return dict(json.loads(text)) if text else {}

    def _command(self, ext: dict[str, str], expected: int) -> None:
        """CleanBrokerData, of any controller. Raises Violation: it is answered otherwise."""
        codes: list[tuple[int, str | None]] = []

        async def ask(node: Node) -> None:
            rng = self.world.stream(f"load/{node.name}")
            async with session(self._cluster.name_servers) as client:
                while not codes:
                    address = f"{rng.choice(self._cluster.controllers).machine.address}:9878"
                    try:
                        question = request(RequestCode.CLEAN_BROKER_DATA, ext)
                        answer = await client.calls.call(address, question, WITHIN_S)
                    except (RemotingError, ResolveError):
                        continue
                    if answer.code not in (
                        ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_ERROR
                    ):  # fmt: skip
                        codes.append((answer.code, answer.remark))

        self._cluster.client(f"person-{len(self._cluster.clients)}", ask).boot()
        if not self._cluster.run(PEACE_S, until=lambda: bool(codes)):
            raise Violation(f"{ext} is not answered")
        if codes[0][0] != expected:
            raise Violation(f"{ext} is answered {codes[0]}")


class AdoptedRun(LossRun):
    """The controllers lose their volumes, and the copies are adopted, with more than one topic.

    The quorum learns the topics from the log of the group, a few at a time, and knows all of them
    in the end.
    """

    mild = ()
    stories = ("quorum",)

    def play(self) -> None:
        """Raises Violation. Few topics make a report."""
        with mock.patch.object(topic_sync, "TOPICS_PER_REPORT", 2):
            super().play()

    def act(self) -> None:
        """Raises Violation: a topic is missing."""
        self._cluster.topics += MORE_TOPICS
        super().act()
        for controller in map(self._cluster.controller_of, self._cluster.controllers):
            known = controller.machine.state.topic_table((CLUSTER, GROUP)).topics
            missing = set(self._cluster.topics) - set(known)
            if missing:
                raise Violation(f"{controller} does not know {missing} any more: {list(known)}")
