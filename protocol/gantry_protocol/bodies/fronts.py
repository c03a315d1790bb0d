"""Bodies of GetFrontGroups (31010): the groups that the fronts of a cluster serve."""

import msgspec

from gantry_protocol.bodies.codec import Body
from gantry_protocol.types import Epoch


class FrontGroupRow(Body, frozen=True):
    """One broker group, as fronts have to know it.

    Attributes:
        name: of the group.
        index: its place at every front of the cluster: its port is the first port plus this.
        epoch: of the present or the last master.
        master_address: where clients reach the master; empty while there is none.
        uid: of its owner's declaration, which is its name in a tier; empty without one, and from
            controllers of an older version.
        replicas: by broker id, where clients reach the replicas in sync.
    """

    name: str
    index: int
    epoch: Epoch
    master_address: str = ""
    uid: str = ""
    replicas: dict[int, str] = msgspec.field(default_factory=dict)


class FrontGroups(Body, frozen=True):
    """The answer to GetFrontGroups (31010).

    Attributes:
        digest: of ``groups`` as they are now.
        groups: all that serve, by name; none where the question named this digest.
    """

    digest: str
    groups: list[FrontGroupRow] = msgspec.field(default_factory=list)
