"""Copies whose registration this quorum refuses, since they know of epochs that it never decided.

That is how brokers look to a quorum that has lost its volumes, or was founded anew: each says every
second how far its log goes. They are remembered for as long as they go on saying so, by the leader
alone, so that a person can have the quorum adopt the group (``AdoptGroup``).
"""

import msgspec
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_controller.metadata.state import GroupKey

CLAIM_LASTS_S = 10.0
GROUPS_MAX = 1_000


class RefusedClaim(msgspec.Struct, frozen=True, gc=False):
    """The contents of a refused registration, and its time."""

    epoch: Epoch
    max_offset: Offset
    said_s: float


class Claims:
    """Of one node; beyond ``GROUPS_MAX`` groups further ones are not remembered."""

    def __init__(self) -> None:
        self._claims: dict[GroupKey, dict[BrokerId, RefusedClaim]] = {}

    def note(self, key: GroupKey, broker_id: BrokerId, claim: RefusedClaim) -> None:
        """A registration was refused; only members of groups on record come so far."""
        if key not in self._claims and len(self._claims) >= GROUPS_MAX:
            for other in list(self._claims):
                self.of(other, claim.said_s)
            if len(self._claims) >= GROUPS_MAX:
                return
        self._claims.setdefault(key, {})[broker_id] = claim

    def of(self, key: GroupKey, now_s: float) -> dict[BrokerId, RefusedClaim]:
        """The claimants to a copy of this group, by id."""
        claims = self._claims.get(key)
        if claims is None:
            return {}
        for broker_id in [
            item for item, claim in claims.items() if now_s > claim.said_s + CLAIM_LASTS_S
        ]:
            self.end(key, broker_id)
        return dict(claims)

    def end(self, key: GroupKey, broker_id: BrokerId) -> None:
        """It has registered, or is silent."""
        claims = self._claims.get(key)
        if claims is not None:
            claims.pop(broker_id, None)
            if not claims:
                del self._claims[key]
