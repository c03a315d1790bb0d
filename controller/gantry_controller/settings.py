"""The controller's settings: one frozen model, read from flags, ``GANTRY_*`` variables or TOML.

Who it is and where it listens is here; how it works is defined in `gantry_protocol.settings`, from
which the operator takes it too.
"""

import contextlib
import ipaddress
import re
from pathlib import Path
from typing import Annotated, Self

from gantry_protocol.errors import ConfigError, ResolveError
from gantry_protocol.hosts import join_address, split_address
from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.process.config import Settings
from gantry_protocol.quorum_key import ALLOW_HELP, KEY_FILE_HELP
from gantry_protocol.settings.controller import ControllerTuning
from gantry_protocol.tls.listeners import ListenerSettings
from gantry_protocol.types import NodeId
from pydantic import Field, ValidationError, field_validator, model_validator

REMOTING_PORT = 9878
NAMESERVER_PORT = 9876
RAFT_PORT = 9879
HTTP_PORT = 9880

PORT_MAX = 65535

Port = Annotated[int, Field(ge=0, le=PORT_MAX)]

_ORDINAL = re.compile(r"-(\d+)$")
_PEER = re.compile(r"^(\d+)=(\[[^\]]+\]|[^:]+)(?::(\d+))?(?::(\d+))?(?::(\d+))?$")


class Peer(Settings):
    """One member of the quorum, as the others reach it."""

    node_id: NodeId
    host: str
    raft_port: Port = RAFT_PORT
    remoting_port: Port = REMOTING_PORT
    http_port: Port = HTTP_PORT

    @property
    def name(self) -> str:
        """The first label of the host name: the pod's name where hosts are pods."""
        return self.host if _is_ip(self.host) else self.host.partition(".")[0]

    @property
    def raft_address(self) -> str:
        """The address of its peers' connections."""
        return join_address(self.host, self.raft_port)

    @property
    def contact(self) -> str:
        """All of its addresses, as the log and hellos carry them (``node.contacts``)."""
        return f"{self.raft_address}:{self.remoting_port}:{self.http_port}"

    @property
    def remoting_address(self) -> str:
        """The address of brokers' and tools' connections."""
        return join_address(self.host, self.remoting_port)

    def http_url(self, *, tls: bool = False) -> str:
        """The base of its admin API."""
        return f"{'https' if tls else 'http'}://{join_address(self.host, self.http_port)}"


class ControllerSettings(ControllerTuning, MemberTlsSettings, ListenerSettings):
    """Everything a controller process can be told."""

    name: str = Field(
        default="controller-0", min_length=1, description="Name of this node: its pod's name."
    )
    node_id: int | None = Field(
        default=None,
        ge=1,
        description="Number of this node in the quorum; by default one more than the number that "
        "the name ends in.",
    )
    peers: str = Field(
        default="",
        description="All members of the quorum, this one included, as "
        "1=host[:raft[:remoting[:http]]],2=…; by default this node alone.",
    )
    join: bool = Field(
        default=False,
        description="Found nothing: wait until a leader takes this node in (gantry controllers "
        "add). For a node with an empty directory whose quorum exists already.",
    )
    quorum_size: int | None = Field(
        default=None,
        ge=1,
        description="Number of members that the quorum has by now, where --peers names another "
        "number of them: nodes from 1 to this one, of which those that --peers does not name join. "
        "Such a quorum is not founded again. By default what a file quorum-size beside the "
        "configuration file says, if there is one.",
    )
    rejoin: bool = Field(
        default=False,
        description="Come back although the log here is damaged: its files are put aside, and this "
        "node votes again only when the others have filled it. For one start; refused if the log "
        "is sound.",
    )
    cluster_uid: str = Field(
        default="local",
        min_length=1,
        max_length=128,
        description="Identity of the quorum; a node refuses data and peers of another one.",
    )
    bind: str = Field(default="127.0.0.1", description="IP address to listen on.")
    advertise: str | None = Field(
        default=None,
        description="IP address that others use; by default the one to listen on.",
    )
    data_dir: Path = Field(
        default=Path("gantry-controller"), description="Directory of the replicated log."
    )
    admin_token_file: Path | None = Field(
        default=None,
        description="File with the bearer token of the admin API; without it the API admits "
        "nobody.",
    )
    quorum_key_file: Path | None = Field(default=None, description=KEY_FILE_HELP)
    allow_unauthenticated: bool = Field(default=False, description=ALLOW_HELP)
    remoting_port: Port = Field(
        default=REMOTING_PORT, description="Port for brokers and tools; 0 picks a free one."
    )
    nameserver_port: Port = Field(
        default=NAMESERVER_PORT,
        description="Port of the name service, for clients; it serves nothing else.",
    )
    listeners: str = Field(
        default="",
        description="Ports of the name service for clients outside of the cluster, as "
        "name=port,name=port. They are told the addresses that a group has declared for the "
        "listener of that name, and no others. At most 4.",
    )
    raft_port: Port = Field(default=RAFT_PORT, description="Port for the other controllers.")
    http_port: Port = Field(
        default=HTTP_PORT, description="Port of the admin API, probes and metrics."
    )

    @field_validator("bind", "advertise")
    @classmethod
    def _must_be_ip(cls, value: str | None) -> str | None:
        if value is not None and not _is_ip(value):
            raise ValueError(f"{value!r} is not an IP address")
        return value

    @model_validator(mode="after")
    def _must_be_a_member(self) -> Self:
        members, number = self.named, self.number
        if not self.joins and members and not self.is_named:
            raise ValueError(f"node {number} ({self.name}) is not among the peers {self.peers!r}")
        is_lonely = self.founds and all(peer.node_id == number for peer in members)
        if self.rejoin and not self.joins and is_lonely:
            raise ValueError(
                f"node {number} ({self.name}) cannot rejoin, it has no peers to fill it: name them "
                "with --peers, or start with --join as well; a quorum of one must restore its files"
            )
        return self

    @property
    def number(self) -> NodeId:
        """This node's number in the quorum."""
        if self.node_id is not None:
            return NodeId(self.node_id)
        ordinal = _ORDINAL.search(self.name)
        return NodeId(1 if ordinal is None else int(ordinal.group(1)) + 1)

    @property
    def advertised(self) -> str:
        """The address that others use."""
        return self.bind if self.advertise is None else self.advertise

    @property
    def named(self) -> tuple[Peer, ...]:
        """The members that ``peers`` names, ascending."""
        return parse_peers(self.peers) if self.peers else ()

    @property
    def is_named(self) -> bool:
        """Whether this node is one of them."""
        return any(peer.node_id == self.number for peer in self.named)

    @property
    def founds(self) -> bool:
        """Whether the members that ``peers`` names may found the quorum.

        Once it has another size they may not: a member that lost its disk would be alone with what
        is left of them, and found another quorum beside the one that goes on.
        """
        return self.quorum_size is None or self.quorum_size == max(len(self.named), 1)

    @property
    def joins(self) -> bool:
        """Whether this node waits to be taken in by a quorum that exists."""
        size = self.quorum_size or 0
        return self.join or (bool(self.named) and not self.is_named and self.number <= size)

    @property
    def members(self) -> tuple[Peer, ...]:
        """The founding members, ascending; this node is among them even if it joins."""
        named = self.named
        if self.is_named:
            return named
        own = Peer(
            node_id=self.number,
            host=self.advertised,
            raft_port=self.raft_port,
            remoting_port=self.remoting_port,
            http_port=self.http_port,
        )
        return tuple(sorted((*named, own), key=lambda peer: peer.node_id))


def parse_peers(text: str) -> tuple[Peer, ...]:
    """The members that ``1=host[:raft[:remoting[:http]]],…`` names, ascending.

    Raises:
        ValueError: a part is malformed or a number comes twice; says which.
    """
    peers: dict[int, Peer] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PEER.match(part)
        if match is None:
            raise ValueError(f"{part!r} is not number=host[:raft[:remoting[:http]]]")
        number = int(match.group(1))
        if number < 1 or number in peers:
            raise ValueError(f"{part!r}: numbers start at 1 and come once")
        ports = ("raft_port", "remoting_port", "http_port")
        given = {
            name: int(port)
            for name, port in zip(ports, match.groups()[2:], strict=True)
            if port is not None
        }
        try:
            peer = Peer(node_id=NodeId(number), host=match.group(2).strip("[]"), **given)
            split_address(peer.remoting_address)
        except (ValidationError, ResolveError) as error:
            raise ValueError(f"{part!r} has a port outside 1..65535") from error
        peers[number] = peer
    if not peers:
        raise ValueError(f"{text!r} names no member")
    return tuple(peers[number] for number in sorted(peers))


def members_of(settings: ControllerSettings, contacts: dict[NodeId, str]) -> dict[NodeId, Peer]:
    """The members that have these ``contacts`` (``node.contacts``), ascending.

    Those that ``--peers`` names are taken from there. A contact that cannot be read is left out: it
    came from a log, and a member nobody can reach is shown by its absence.
    """
    stated = settings.named or settings.members
    found = {peer.node_id: peer for peer in stated if peer.node_id in contacts}
    for node, contact in contacts.items():
        if node not in found:
            with contextlib.suppress(ValueError):
                (found[node],) = parse_peers(f"{node}={contact}")
    return dict(sorted(found.items()))


def read_token(file: Path) -> str:
    """The admin API's bearer token.

    Raises:
        ConfigError: the file cannot be read or is empty.
    """
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The admin token file {file} cannot be read: {error}.") from error
    if not token:
        raise ConfigError(f"The admin token file {file} is empty; put the token into it.")
    return token


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
