"""Consumers of one group, between its master and the controllers.

Membership: what changes in the sessions is reported (31001), the changes of ``REPORT_GAP_S`` in one
request, one request under way at a time; a heartbeat without news costs nothing. A new master first
reads what its predecessor reported (31002) and remembers it for ``REMEMBER_S``, so that the clients
that come back are not told that everybody else is gone. Nothing is reported before that was read.
Whom the masters of other broker groups hear is a member here, too (``elsewhere``). What the
controllers hold is read again now and then, and mended: they forget what a master reported that
they take for gone.

Settings: subscription groups are read (201) whenever the controllers name a newer version.

The rules protected: a report never says less than is remembered; only the serving master speaks,
and each report carries the epoch that it is the master of. What is not known is the default, and
nobody waits for it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from gantry_protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupTable, decode_body
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.consumers import (
    ConsumerClient,
    ConsumerMembership,
    ConsumerReport,
    ConsumerTable,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError, WireError
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.consumers import (
    GetConsumersRequestHeader,
    ReportConsumersRequestHeader,
    SubscriptionGroupRequestHeader,
    SubscriptionsVersionHeader,
)
from gantry_protocol.process import log
from gantry_protocol.remoting.asking import Asker, Outcome
from msgspec.structs import replace

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.lock_keeping import LockKeeper

CALL_TIMEOUT_S = 2.0
REPORT_GAP_S = 0.2
RETRY_S = 1.0
VERIFY_EVERY_S = 60.0
REMEMBER_S = 45.0  # clients send their subscriptions every 30 s
GROUPS_PER_REPORT = 200
DIRTY_MAX = 20_000  # as many consumer groups as the controllers keep

_log = log.get("consumers")


class Here(Protocol):
    """The sessions of this mastership."""

    def membership(self, group: str) -> ConsumerMembership | None:
        """The members of ``group`` here; None if there are none."""

    def has(self, group: str, client_id: str) -> bool:
        """Whether a client is a member of ``group`` here."""

    def tell(self, group: str) -> None:
        """The members of ``group`` must divide its queues anew."""


class Consumers:
    """See the module.

    Args:
        cluster: of the group.
        name: of the group.
        peers: the controllers.
        elsewhere: what they know of the cluster's other broker groups.

    Attributes:
        locks: of queues that members consume in order.
        reports: that were accepted.
        unreported: changes that were given up, because there were too many or were refused.
    """

    def __init__(self, cluster: str, name: str, peers: Asker, elsewhere: Elsewhere) -> None:
        """Nothing is under way."""
        self.locks = LockKeeper(cluster, name, peers, self.is_member)
        self.reports = 0
        self.unreported = 0
        self._cluster = cluster
        self._name = name
        self._peers = peers
        self._elsewhere = elsewhere
        self._claim: Claim | None = None
        self._here: Here | None = None
        self._known: dict[str, ConsumerMembership] = {}  # what the controllers hold
        self._read = False  # whether they have said so in this mastership
        self._everybody_is_back = False  # or forgotten, in this mastership
        self._remembered: dict[str, dict[str, ConsumerClient]] = {}
        self._dirty: dict[str, None] = {}
        self._reporting = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self._configs_version = 0
        self._configs_wanted = 0
        self._reading_configs = False

    # ---- mastership

    def began(self, claim: Claim) -> None:
        """This broker is the serving master now."""
        self.end()
        self._claim = claim
        self._read_members()
        self.locks.began(claim)
        self._elsewhere.join(self._name, self._moved)

    def end(self) -> None:
        """It is not any more; what is under way will be ignored."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._elsewhere.leave(self._name)
        self.locks.end()
        self._claim = self._here = None
        self._read = self._reporting = self._everybody_is_back = False
        self._known, self._remembered, self._dirty = {}, {}, {}

    def serve(self, here: Here) -> None:
        """``here`` are the sessions of this mastership."""
        self._here = here

    # ---- what sessions ask and say

    def remembered(self, group: str) -> list[str]:
        """Clients that were members under the last master and have not come back yet."""
        return list(self._remembered.get(group, ()))

    def elsewhere(self, group: str) -> list[str]:
        """Members that the master of another broker group hears."""
        return self._elsewhere.clients(self._name, group)

    def is_elsewhere(self, group: str, client_id: str) -> bool:
        """Whether a client is one of these."""
        return self._elsewhere.has(self._name, group, client_id)

    def is_member(self, group: str, client_id: str) -> bool:
        """Whether a client is a member here, was one under the last master, or is one elsewhere."""
        return (
            (self._here is not None and self._here.has(group, client_id))
            or client_id in self._remembered.get(group, ())
            or self.is_elsewhere(group, client_id)
        )

    @property
    def may_be_served(self) -> bool:
        """Whether any group may have members that this young mastership has not heard of yet."""
        return self._claim is not None and not self._everybody_is_back

    def came(self, group: str, client_id: str) -> bool:
        """A client is a member here now; returns whether it was one all along."""
        clients = self._remembered.get(group)
        if clients is None or clients.pop(client_id, None) is None:
            return False
        if not clients:
            del self._remembered[group]
        return True

    def changed(self, group: str) -> None:
        """Members or subscriptions of ``group`` changed here."""
        if self._claim is None:
            return
        if group not in self._dirty and len(self._dirty) >= DIRTY_MAX:
            self.unreported += 1
            return
        self._dirty[group] = None
        self._report_in(REPORT_GAP_S)

    # ---- reading the members

    def _ask_members(self, came: Callable[[Outcome], None]) -> None:
        """Ask what the controllers hold; ``came`` is called in this mastership only."""
        claim = self._claim
        header = GetConsumersRequestHeader(self._name, self._cluster)
        command = request(RequestCode.GANTRY_GET_CONSUMERS, to_ext(header))

        def answered(outcome: Outcome) -> None:
            if self._claim is claim:
                came(outcome)

        self._peers.ask(command, answered, CALL_TIMEOUT_S)

    def _read_members(self) -> None:
        self._ask_members(self._members_came)

    def _members_came(self, outcome: Outcome) -> None:
        if _code(outcome) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return  # controllers of another make: nothing is read, and nothing reported
        try:
            table = decode_body(ConsumerTable, _accepted(outcome).body)
        except (RemotingError, WireError) as error:
            _log.debug("consumers could not be read", reason=error)
            self._after("read", RETRY_S, self._read_members)
            return
        self._read = True
        self._known = dict(table.groups)
        for group, membership in table.groups.items():
            present = self._present(group)
            absent = {item.client_id: item for item in membership.clients}
            for client in () if present is None else present.clients:
                absent.pop(client.client_id, None)
            if absent:
                self._remembered[group] = absent
        self._after("forget", REMEMBER_S, self._forget)
        self._after("verify", VERIFY_EVERY_S, self._verify)
        self._report_in(REPORT_GAP_S)

    def _verify(self) -> None:
        """Read what the controllers hold; nothing is concluded if it changes meanwhile."""
        reports = self.reports

        def came(outcome: Outcome) -> None:
            self._after("verify", VERIFY_EVERY_S, self._verify)
            if self._reporting or self.reports != reports:
                return
            try:
                held = decode_body(ConsumerTable, _accepted(outcome).body).groups
            except (RemotingError, WireError) as error:
                _log.debug("consumers could not be read", reason=error)
                return
            before, self._known = self._known, dict(held)
            for group in sorted(before.keys() | held.keys()):
                if before.get(group) != held.get(group):
                    self.changed(group)

        self._ask_members(came)

    def _forget(self) -> None:
        """Who has not come back by now is gone."""
        self._everybody_is_back = True
        remembered, self._remembered = self._remembered, {}
        for group in remembered:
            self.changed(group)
            if self._here is not None:
                self._here.tell(group)

    def _moved(self, group: str, clients: set[str]) -> None:
        """These are heard elsewhere now, or not any more; of whom we hear that changes nothing."""
        here, remembered = self._here, self._remembered.get(group, ())
        if here is not None and any(
            client not in remembered and not here.has(group, client) for client in clients
        ):
            here.tell(group)

    # ---- reporting

    def _report_in(self, wait_s: float) -> None:
        if self._read and self._dirty and not self._reporting and "report" not in self._timers:
            self._after("report", wait_s, self._report)

    def _report(self) -> None:
        claim = self._claim
        groups = list(self._dirty)[:GROUPS_PER_REPORT]
        if claim is None:
            return
        now = {group: self._members(group) for group in groups}
        news = {group: item for group, item in now.items() if item != self._known.get(group)}
        for group in groups:
            del self._dirty[group]
        if not news:
            self._report_in(REPORT_GAP_S)
            return
        self._reporting = True
        header = ReportConsumersRequestHeader(
            self._cluster, self._name, claim.broker_id, claim.epoch, claim.incarnation
        )
        body = ConsumerReport(
            groups={group: item for group, item in news.items() if item is not None},
            gone=[group for group, item in news.items() if item is None],
        )
        command = request(RequestCode.GANTRY_REPORT_CONSUMERS, to_ext(header), encode_body(body))

        def answered(outcome: Outcome) -> None:
            if self._claim is claim:
                self._reported(outcome, news)

        self._peers.ask(command, answered, CALL_TIMEOUT_S)

    def _reported(self, outcome: Outcome, news: dict[str, ConsumerMembership | None]) -> None:
        self._reporting = False
        code = _code(outcome)
        if code == ResponseCode.SUCCESS:
            self.reports += 1
            for group, members in news.items():
                if members is None:
                    self._known.pop(group, None)
                else:
                    self._known[group] = members
            self._report_in(REPORT_GAP_S)
        elif code == ResponseCode.INVALID_PARAMETER:
            self.unreported += len(news)
            _log.warning("consumers were not accepted", groups=len(news), reason=_why(outcome))
            self._report_in(REPORT_GAP_S)
        else:  # unknown, no leader, or another master by now: then the end of ours is on its way
            self._dirty = {**dict.fromkeys(news), **self._dirty}
            self._report_in(RETRY_S)

    def _members(self, group: str) -> ConsumerMembership | None:
        """Present and remembered members, in the order in which the controllers keep them."""
        present, known = self._present(group), self._known.get(group)
        clients = dict(self._remembered.get(group, {}))
        base = known if present is None else present
        if present is not None:
            clients.update({item.client_id: item for item in present.clients})
        if not clients or base is None:
            return None
        return replace(base, clients=[clients[client] for client in sorted(clients)])

    def _present(self, group: str) -> ConsumerMembership | None:
        return None if self._here is None else self._here.membership(group)

    def _after(self, name: str, wait_s: float, action: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.pop(name, None)
            action()

        self._timers[name] = asyncio.get_running_loop().call_later(wait_s, due)

    # ---- settings

    def config(self, group: str) -> SubscriptionGroupConfig:
        """The settings of ``group``; upstream's defaults unless somebody has set them."""
        return self._configs.get(group) or SubscriptionGroupConfig(group)

    @property
    def configs(self) -> SubscriptionGroupTable:
        """All that was set, as of the newest reading."""
        return SubscriptionGroupTable(dict(self._configs))

    @property
    def is_current(self) -> bool:
        """Whether no newer settings have been heard of than were read."""
        return self._configs_version >= self._configs_wanted

    def catch_up(self, version: int) -> None:
        """The controllers' subscription groups are at ``version``."""
        self._configs_wanted = max(self._configs_wanted, version)
        if self._configs_wanted <= self._configs_version or self._reading_configs:
            return
        self._reading_configs = True
        header = SubscriptionGroupRequestHeader(self._cluster, self._name)
        command = request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, to_ext(header))
        self._peers.ask(command, self._configs_came, CALL_TIMEOUT_S)

    def _configs_came(self, outcome: Outcome) -> None:
        """What could not be read is asked for again when the version is next heard of."""
        self._reading_configs = False
        try:
            answer = _accepted(outcome)
            table = decode_body(SubscriptionGroupTable, answer.body)
            header = from_ext(SubscriptionsVersionHeader, answer.ext)
        except (RemotingError, WireError) as error:
            _log.debug("subscription groups could not be read", reason=error)
            return
        version = header.subscriptions_version or 0
        if version > self._configs_version:
            self._configs, self._configs_version = dict(table.subscription_group_table), version

    def change(self, command: RemotingCommand, done: Callable[[Outcome], None]) -> None:
        """Pass a change of subscription groups on to the controllers; ``done`` comes once."""
        ext = {**(command.ext or {}), "clusterName": self._cluster, "brokerName": self._name}
        self._peers.ask(
            request(command.code, ext, command.body),
            lambda outcome: self._change_answered(outcome, done),
            CALL_TIMEOUT_S,
        )

    def _change_answered(self, outcome: Outcome, done: Callable[[Outcome], None]) -> None:
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            version = from_ext(SubscriptionsVersionHeader, outcome.ext).subscriptions_version
            self.catch_up(version or 0)
        done(outcome)


def _code(outcome: Outcome) -> int | None:
    return outcome.code if isinstance(outcome, RemotingCommand) else None


def _why(outcome: Outcome) -> str | None:
    return outcome.remark if isinstance(outcome, RemotingCommand) else str(outcome)


def _accepted(outcome: Outcome) -> RemotingCommand:
    """The answer, if it is one of success.

    Raises:
        RemotingError: there is none.
        WireError: it is a refusal.
    """
    if not isinstance(outcome, RemotingCommand):
        raise outcome
    if outcome.code != ResponseCode.SUCCESS:
        raise WireError(f"The controllers answered {outcome.code}: {outcome.remark}.")
    return outcome
