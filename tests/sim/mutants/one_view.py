"""Bugs in the one view of a cluster's consumers (RIP-18)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

CLIENTS = "gantry_broker.clients"
METADATA = "gantry_controller.metadata"
UNHEARD = "gantry_controller.liveness.core.unheard:UnheardConsumers.due"
BOTH, VIEW = (
    "unit/broker/clients/test_elsewhere.py",
    "unit/controller/metadata/test_consumer_view.py",
)
SESSIONS = "unit/broker/clients/test_membership.py"
REPORTS = "unit/broker/clients/test_consumers.py"
EVENTS = "unit/controller/metadata/test_subscriptions.py"
TOLD = "integration/controller/test_notifier.py"
GONE = "unit/controller/liveness/test_unheard.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "one view", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "heard-elsewhere-is-no-member",
        "two masters name two lists of members, and a queue has two owners",
        f"{CLIENTS}.sessions:Sessions.client_ids",
        ", *self._book.elsewhere(name)",
        "",
        BOTH,
    ),
    _mutant(
        "leaving-one-master-moves-queues",
        "a client that loses one of two connections has all others divide their queues anew",
        f"{CLIENTS}.sessions:Sessions._leave",
        "elif not self._is_one(name, gone.client_id):",
        "else:",
        BOTH,
    ),
    _mutant(
        "gone-elsewhere-is-told-to-nobody",
        "the queues of a client that only another master heard are given to nobody",
        f"{CLIENTS}.consumers:Consumers._moved",
        "here.tell(group)",
        "pass",
        BOTH,
    ),
    _mutant(
        "only-heartbeats-are-heard",
        "a client that pulls, and sends no heartbeat because another broker is silent, is put out",
        f"{CLIENTS}.sessions:Sessions.expire",
        "max(seen_at, conn.heard_s)",
        "seen_at",
        SESSIONS,
    ),
    _mutant(
        "left-out-groups-keep-their-members",
        "a client whose UnregisterClient was lost keeps queues as long as it is connected",
        f"{CLIENTS}.sessions:Sessions.expire",
        " or seen_at < newest[conn.id] - EXPIRY_S",
        "",
        SESSIONS,
    ),
    _mutant(
        "part-of-the-whole-believed",
        "after the first page of a long list everybody else is gone for a moment",
        f"{CLIENTS}.elsewhere:Elsewhere._take",
        "if page.after is None:",
        "if True:",
        BOTH,
    ),
    _mutant(
        "news-asked-for-without-end",
        "whoever speaks to a broker's port has it ask the controllers as often as he likes",
        f"{CLIENTS}.elsewhere:Elsewhere.look",
        "self._answered_s + LOOK_GAP_S",
        "0 * self._answered_s",
        BOTH,
    ),
    _mutant(
        "role-change-replaced-by-news",
        "news of consumers take the place of a role change that waits for the same broker",
        "gantry_controller.remoting.notifier:Notifier.tell",
        "self._next.setdefault(address, {})[command.code] = command",
        "self._next[address] = {command.code: command}",
        TOLD,
    ),
    _mutant(
        "view-of-the-last-master",
        "only those whom the master of the last broker group hears are members",
        f"{METADATA}.consumer_view:ClusterConsumers.group",
        "known = heard.get(client.client_id)",
        "known = heard.clear()",
        VIEW,
    ),
    _mutant(
        "forgotten-end-untold",
        "whoever has read long ago is never told that a consumer group has ended",
        f"{METADATA}.consumer_view:ClusterConsumers.page",
        "self._forgotten_at <= since",
        "0 < since",
        VIEW,
    ),
    _mutant(
        "one-change-in-two-pages",
        "a reader goes on behind what changed at the same index, and never learns of the rest",
        f"{METADATA}.consumer_view:ClusterConsumers._news",
        "size >= PAGE_CLIENTS_MAX and at > until",
        "size >= PAGE_CLIENTS_MAX",
        VIEW,
    ),
    _mutant(
        "retired-group-keeps-its-consumers",
        "clients of a broker group that nobody is sent to any more are members for ever",
        f"{METADATA}.groups:retire_group",
        "gone = end_consumers(state, group)",
        "gone = ()",
        EVENTS,
    ),
    _mutant(
        "dead-masters-word-kept",
        "what a master reported that is gone for good is believed for ever",
        UNHEARD,
        "if now_s - self._since_s[key] >= KEPT_S",
        "if False",
        GONE,
    ),
    _mutant(
        "unheard-for-a-moment-forgotten",
        "a failover that takes seconds has all queues divided anew",
        UNHEARD,
        "self._since_s[key] = seen_s.get(key, now_s)",
        "self._since_s[key] = float('-inf')",
        GONE,
    ),
    _mutant(
        "living-masters-word-forgotten",
        "a master that was elected meanwhile loses what it has just reported",
        f"{METADATA}.subscriptions:forget_consumers",
        "if group.master_epoch != event.master_epoch:",
        "if False:",
        GONE,
    ),
    _mutant(
        "forgotten-and-never-told-again",
        "a master that comes back after two minutes is believed to hear nobody",
        f"{CLIENTS}.consumers:Consumers._verify",
        "if before.get(group) != held.get(group):",
        "if False:",
        REPORTS,
    ),
)
