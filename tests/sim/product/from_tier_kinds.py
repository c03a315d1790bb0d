"""A group that begins from the tier of one that is gone with its volumes and its controllers.

What was acknowledged and is in the tier is there at its place, and nothing else of what was
acknowledged before. Members fail while they copy, and the store is unkind. Nothing in the bucket
is changed or deleted, and the new group goes on in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.kernel.world import MS, Violation
from sim.product import faults
from sim.product.cluster import CLUSTER
from sim.product.loss_kinds import PATH, LossRun
from sim.product.tier_kinds import small_tier
from sim.product.tier_watch import SHARD, TierWatch

if TYPE_CHECKING:
    from random import Random

NEW_UID = "u2"
MORE = 30  # acknowledgements of the new group
UPLOADS_S = 180  # until something is in an unkind store
COPIES_S = 6  # amid faults; a copy that was not done by then is made in peace
REACHES_S = 60
KINDS = (
    *("kill", "kill", "power-cut", "power-cut", "terminate", "freeze"),
    *("isolate", "slow-disk", "slow-network", "full-disk"),
)
"""What happens to members that copy."""


class FromTierRun(LossRun):
    """See the module."""

    mild = ()
    stories = ("from_tier",)

    def settings(self, rng: Random) -> dict[str, Any]:
        """A tier that is used a lot."""
        return small_tier(rng)

    def act(self) -> None:
        """Raises Violation."""
        self._tier = TierWatch(self._cluster.network.bucket, self._watch, CLUSTER)
        super().act()
        self._tier.judge(REACHES_S)

    def _from_tier(self, rng: Random) -> int:
        """Returns where the tier ended when it was taken."""
        cluster, tier = self._cluster, self._tier
        everybody = [*cluster.brokers, *cluster.controllers]
        self._until("some of it is uploaded", lambda: tier.chain.end > 0, UPLOADS_S)
        cluster.run(rng.random() * 6)
        self._go_down(everybody)
        self._watch.is_over = True
        for node in everybody:
            node.wanted = False
            node.machine.volume.wipe()
        kept = dict(cluster.network.bucket.objects)
        cluster._broker_settings |= {"tier_owner": NEW_UID}
        faults.plan(cluster, faults.draw(rng, COPIES_S * 1000, KINDS))
        for node in everybody:
            node.wanted = True
            self.world.after(rng.randrange(2_000) * MS, node.boot)
        self._declare_anew(NEW_UID)
        cluster.run(COPIES_S)
        cluster.make_peace()
        self._until("all copies knock", lambda: len(self._refused()) == len(cluster.brokers))
        self._nobody_is_elected()
        end = self._copied()
        ids = sorted(self._refused())
        confirmed = self._watch.confirmed[:end]
        self._watch_anew()
        self._watch.confirmed += confirmed  # the new history begins with the same bytes
        tier.goes_on(self._watch)
        self._ask("POST", f"{PATH}/adopt", {"brokerIds": ids, "masterEpoch": 0}, 200)
        self._until("all are there", lambda: cluster.is_whole)
        self._takes_more()
        late = rng.choice([node for node in cluster.brokers if node is not cluster.master()])
        late.kill()
        late.machine.volume.wipe()
        late.boot()
        self._until("its master fills a new volume", lambda: cluster.is_whole)
        changed = [key for key in kept if cluster.network.bucket.objects.get(key) != kept[key]]
        if changed or (tier.chain.owner, tier.chain.shard) != (NEW_UID, SHARD):
            raise Violation(f"{changed} have changed; {tier.chain.owner} owns the tier")
        return end

    def _takes_more(self) -> None:
        acks = self._watch.acks
        self._until("it takes more", lambda: self._watch.acks > acks + MORE)

    def _copied(self) -> int:
        """The end of every copy. Raises Violation: they differ."""
        groups = map(self._cluster.group_of, self._cluster.brokers)
        ends = [None if group is None else int(group._store.log.end) for group in groups]
        if set(ends) != {self._tier.chain.end}:
            raise Violation(f"copies end at {ends}, the tier at {self._tier.chain.end}")
        return self._tier.chain.end
