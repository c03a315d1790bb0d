"""GetReplicaInfo (1004), with which every broker polls: mostly nothing has changed.

What is said of a group is put into its wire form once and said again for as long as it would be
made of the very same things. A group is an immutable value, so the same object says the same; an
answer is as new as the state that was looked at for it, never older.
"""

from typing import NamedTuple

from gantry_protocol.bodies.batches import answer_digest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.types import BrokerId

from gantry_controller.metadata.state import BrokerGroup, GroupKey
from gantry_controller.remoting import replies

GROUPS_MAX = 16_384
"""Remembered at a time, in less than a kilobyte each; beyond that all are forgotten."""


_NOBODY = request(RequestCode.CONTROLLER_GET_REPLICA_INFO)


class _Said(NamedTuple):
    group: BrokerGroup
    versions: replies.Versions
    draining: list[BrokerId]
    ext: dict[str, str]
    body: bytes
    digest: int


class ReplicaInfo:
    """The answers to GetReplicaInfo of one node."""

    def __init__(self) -> None:
        self._said: dict[GroupKey, _Said] = {}

    def __len__(self) -> int:
        return len(self._said)

    def reply(
        self,
        to: RemotingCommand,
        group: BrokerGroup,
        *,
        versions: replies.Versions,
        draining: list[BrokerId],
    ) -> RemotingCommand:
        """As ``replies.replica_info_reply``."""
        said = self._say(to, group, versions, draining)
        return reply(to, ext=said.ext.copy(), body=said.body)

    def digest(
        self, group: BrokerGroup, *, versions: replies.Versions, draining: list[BrokerId]
    ) -> int:
        """The ``answer_digest`` of what ``reply`` would answer."""
        return self._say(_NOBODY, group, versions, draining).digest

    def _say(
        self,
        to: RemotingCommand,
        group: BrokerGroup,
        versions: replies.Versions,
        draining: list[BrokerId],
    ) -> _Said:
        key = group.key
        said = self._said.get(key)
        if (
            said is not None
            and said.group is group
            and said.versions == versions
            and said.draining == draining
        ):
            return said
        answer = replies.replica_info_reply(to, group, versions=versions, draining=draining)
        if len(self._said) >= GROUPS_MAX:
            self._said.clear()
        ext, digest = dict(answer.ext or {}), answer_digest(answer)
        said = self._said[key] = _Said(group, versions, draining, ext, answer.body, digest)
        return said
