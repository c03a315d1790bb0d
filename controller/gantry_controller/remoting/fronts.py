"""GetFrontGroups (31010): what fronts serve, told to them as soon as it changes.

A front names the digest of the answer that it holds. While that is still right, its request waits
(``long_polls``). So fronts follow a change of master without a poll in between.
"""

from functools import partial
from hashlib import blake2b

from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.fronts import FrontGroupRow, FrontGroups
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext
from gantry_protocol.headers.fronts import WAIT_MAX_MS, GetFrontGroupsRequestHeader

from gantry_controller.metadata.events import Event
from gantry_controller.metadata.fronts import fronted
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import MetadataState
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve
from gantry_controller.remoting.long_polls import LongPolls


class FrontRequests:
    """Handler of the fronts' request on one node.

    Attributes:
        polls: those that wait.
    """

    def __init__(self, dispatcher: Dispatcher, machine: MetadataStateMachine) -> None:
        self.polls = LongPolls(dispatcher)
        self._machine = machine
        self._made: dict[str, tuple[str, bytes]] = {}  # digest and body, by cluster, until a change
        machine.add_listener(self._applied)
        machine.add_restore_listener(self._restored)

    def handlers(self) -> dict[RequestCode, Serve]:
        """The handlers of this module's requests."""
        return {RequestCode.GANTRY_GET_FRONT_GROUPS: self._groups}

    def _groups(self, exchange: Exchange) -> None:
        header = from_ext(GetFrontGroupsRequestHeader, exchange.request.ext)
        cluster = header.cluster_name

        def news() -> RemotingCommand | None:
            digest, body = self._present(cluster)
            return None if digest == header.digest else reply(exchange.request, body=body)

        wait_s = min(header.wait_ms, WAIT_MAX_MS) / 1000
        nothing = partial(_nothing_new, exchange, header.digest)
        self.polls.serve(exchange, cluster, wait_s, news, nothing)

    def _present(self, cluster: str) -> tuple[str, bytes]:
        """The digest and the answer as of now; made once for all who wait."""
        if cluster not in self._made:
            groups = front_groups(self._machine.state, cluster)
            made = (groups.digest, encode_body(groups))
            if cluster not in self.polls.keys:
                return made
            self._made[cluster] = made
        return self._made[cluster]

    def _applied(self, _event: Event, result: Result) -> None:
        if result.group is not None:
            self._made.pop(result.group.cluster, None)
            self.polls.wake(result.group.cluster)

    def _restored(self) -> None:
        self._made.clear()
        self.polls.wake_all()


def front_groups(state: MetadataState, cluster: str) -> FrontGroups:
    """The broker groups that fronts of ``cluster`` may serve, as they are now."""
    rows = [
        FrontGroupRow(
            name=group.name,
            index=index,
            epoch=group.master_epoch,
            master_address="" if group.master is None else group.master.address,
            uid="" if group.declaration is None else group.declaration.uid,
            replicas={
                member.broker_id: member.address
                for member in group.members
                if member.broker_id in group.sync_state_set and member.broker_id != group.master_id
            },
        )
        for index, group in fronted(state, cluster)
    ]
    rows.sort(key=lambda row: row.name)
    # Not a checksum: of two digests that are equal by chance the later change would be missed.
    digest = blake2b(encode_body(rows), digest_size=8).hexdigest()
    return FrontGroups(digest, rows)


def _nothing_new(exchange: Exchange, digest: str) -> RemotingCommand:
    return reply(exchange.request, body=encode_body(FrontGroups(digest)))
