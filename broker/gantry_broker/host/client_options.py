"""Settings shared by everything that serves clients, local or remote."""

from typing import NamedTuple

from gantry_protocol.settings.quotas import Quotas

from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.access import ClusterUsers
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.clients.drain import GRACE_S, Leaving
from gantry_broker.clients.processor import Disk, Tuning
from gantry_broker.clients.suggestions import Replicas
from gantry_broker.clients.throttle import Throttle
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.clients.view import GroupView
from gantry_broker.host.settings import BrokerSettings


class ClientOptions(NamedTuple):
    """See the module.

    Attributes:
        levels: how long messages of each delay level wait.
        policy: when producers are asked how their transactions end.
        quotas: of tenants; None where nobody has one.
        offsets_kept_hours: how long the offsets of groups that nobody uses are kept.
        max_batch_messages: how many messages one batch may hold.
        drain_grace_s: in which every client asks for routes.
    """

    levels: DelayLevels
    policy: Policy
    quotas: Quotas | None
    offsets_kept_hours: int
    max_batch_messages: int
    drain_grace_s: float = GRACE_S

    @classmethod
    def of(cls, settings: BrokerSettings) -> "ClientOptions":
        """As the settings say."""
        levels = DelayLevels.parse(settings.delay_levels)
        return cls(
            levels,
            settings.transaction_policy,
            settings.parsed_quotas,
            settings.offsets_kept_hours,
            settings.max_batch_messages,
            settings.drain_grace_s,
        )

    def tuning(self) -> Tuning:
        """The part that may change during a mastership."""
        return Tuning(
            self.policy,
            self.quotas,
            self.offsets_kept_hours,
            self.max_batch_messages,
            self.drain_grace_s,
        )

    def processor(
        self,
        view: GroupView,
        disk: Disk,
        replicas: Replicas,
        leaving: Leaving,
        access: ClusterUsers,
        traced: OpenSends | None,
    ) -> ClientProcessor:
        """Serves clients for one mastership; ``replicas`` may serve reads, ``traced`` are sends."""
        return ClientProcessor(
            view,
            levels=self.levels,
            policy=self.policy,
            throttle=None if self.quotas is None else Throttle(self.quotas),
            disk=disk,
            offsets_kept_hours=self.offsets_kept_hours,
            max_batch_messages=self.max_batch_messages,
            replicas=replicas,
            leaving=leaving,
            drain_grace_s=self.drain_grace_s,
            access=access,
            traced=traced,
        )
