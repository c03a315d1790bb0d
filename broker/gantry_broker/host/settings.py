"""The broker's settings: one frozen model, read from flags, ``GANTRY_*`` variables or TOML.

Who it is and where it listens is here; how it works is defined in `gantry_protocol.settings`, from
which the operator takes it too.
"""

from pathlib import Path
from typing import Annotated

from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.quorum_key import ALLOW_HELP, KEY_FILE_HELP
from gantry_protocol.settings.broker import BrokerTuning, RetentionSettings, TierSettings
from gantry_protocol.settings.quotas import Quotas, parse_quotas
from gantry_protocol.tier.keys import SHARED_UID_MAX_CHARS
from gantry_protocol.tls.listeners import ListenerSettings
from gantry_protocol.tls.settings import demand_ca
from pydantic import Field, field_validator, model_validator

from gantry_broker.clients.core.transactions import Policy
from gantry_broker.control.addresses import checked_ip, controller_addresses
from gantry_broker.host.port_map import PORT_MAX, GroupPort, port_map
from gantry_broker.retention.core.rules import RetentionBounds
from gantry_broker.retention.disk_space import Watermarks

REMOTING_PORT = 10911
HA_PORT = 10912
HTTP_PORT = 10913

Port = Annotated[int, Field(ge=0, le=65535)]


class BrokerSettings(
    TierSettings, RetentionSettings, BrokerTuning, MemberTlsSettings, ListenerSettings
):
    """Everything a broker process can be told."""

    name: str = Field(
        default="broker-0", min_length=1, description="Name of this broker: its pod's name."
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        max_length=127,
        description="Name of the broker group (brokerName), if this process hosts one.",
    )
    groups: list[str] = Field(
        default=[],
        description="Names of the broker groups, if this process hosts many: NAME, NAME:PORT or "
        "a range as in shard-[000-299]. The first listens at remoting_port, each further one at "
        "the next port; add new ones at the end.",
    )
    cluster: str = Field(
        default="gantry", min_length=1, max_length=127, description="Name of its cluster."
    )
    controllers: list[str] = Field(
        min_length=1, description="host:port of every controller; the port defaults to 9878."
    )
    store_port: Port | None = Field(
        default=None,
        description="Port at which fronts append to this store and read from it; 0 picks a free "
        "one. Not set: fronts pass all requests on.",
    )
    quorum_key_file: Path | None = Field(default=None, description=KEY_FILE_HELP)
    allow_unauthenticated: bool = Field(default=False, description=ALLOW_HELP)
    bind: str = Field(default="127.0.0.1", description="IP address to listen on.")
    advertise: str | None = Field(
        default=None, description="IP address that others use; by default the one to listen on."
    )
    data_dir: Path = Field(default=Path("gantry-broker"), description="Directory of the data.")
    pod_uid: str | None = Field(
        default=None, max_length=128, description="uid of this process's pod, if it has one."
    )
    remoting_port: Port = Field(
        default=REMOTING_PORT,
        description="Port for clients, the first group's if there are many; 0 picks a free one.",
    )
    ha_port: Port = Field(
        default=HA_PORT, description="Port for other members of all groups; 0 picks a free one."
    )
    http_port: Port = Field(
        default=HTTP_PORT, description="Port of probes, metrics and status; 0 picks a free one."
    )

    listeners: str = Field(
        default="",
        description="Further ports for clients, from outside of the cluster, as "
        "name=port,name=port; what is served is the same. With groups a port is the first "
        "group's, and each further one has the next. At most 4.",
    )

    @field_validator("bind", "advertise")
    @classmethod
    def _must_be_ip(cls, value: str | None) -> str | None:
        return None if value is None else checked_ip(value)

    @field_validator("controllers")
    @classmethod
    def _must_be_addresses(cls, value: list[str]) -> list[str]:
        return controller_addresses(value)

    @model_validator(mode="after")
    def _must_host_something(self) -> "BrokerSettings":
        if (self.group is None) == (not self.groups):
            raise ValueError(
                "group and groups are both set: name all groups in groups"
                if self.groups
                else "group is missing: name the broker group to host, or many with groups"
            )
        _ = self.port_map
        return self

    @model_validator(mode="after")
    def _must_name_its_place(self) -> "BrokerSettings":
        if (self.tier_url is None) != (self.tier_shard is None):
            given, missing = ("tier_url", "tier_shard")[:: 1 if self.tier_url else -1]
            raise ValueError(f"{given} is set without {missing}: set both, or none")
        if self.hosts_many and len(self.tier_shard or "") > SHARED_UID_MAX_CHARS:
            raise ValueError(
                f"tier_shard has {len(self.tier_shard or '')} characters: with groups it may have "
                f"{SHARED_UID_MAX_CHARS}, since each group's name comes behind it"
            )
        if self.tier_owner is not None and (self.tier_url is None or self.hosts_many):
            raise ValueError(
                "tier_owner is set with groups: one group only can begin from a tier"
                if self.hosts_many
                else "tier_owner is set without tier_url: there is nothing to begin from"
            )
        if self.tier_former_owner is not None and self.tier_owner is None:
            raise ValueError("tier_former_owner is set without tier_owner: nothing is taken over")
        if self.tier_local_bytes is not None and self.tier_url is None:
            raise ValueError("tier_local_bytes is set without tier_url: nothing would be kept")
        return self

    @model_validator(mode="after")
    def _must_reach_masters(self) -> "BrokerSettings":
        demand_ca(self)
        return self

    @property
    def parsed_quotas(self) -> Quotas | None:
        """The quotas; None where nobody has one."""
        return None if self.quotas is None else parse_quotas(self.quotas)

    @property
    def kept(self) -> RetentionBounds:
        """The bounds of the log where there is no tier."""
        return RetentionBounds(
            self.retention_hours or None,
            self.retention_bytes or None,
            gives_way=self.retention_when_full == "delete",
        )

    @property
    def watermarks(self) -> Watermarks:
        """The marks at which a disk is nearly full."""
        return Watermarks(self.disk_refuse_percent, self.disk_take_percent, self.disk_spare_bytes)

    @property
    def transaction_policy(self) -> Policy:
        """The times at which producers are asked how their transactions end."""
        return Policy(
            timeout_ms=int(self.transaction_timeout_s * 1000),
            interval_ms=int(self.transaction_check_interval_s * 1000),
            checks_max=self.transaction_check_max,
        )

    @property
    def advertised(self) -> str:
        """The address that others use."""
        return self.bind if self.advertise is None else self.advertise

    @property
    def hosts_many(self) -> bool:
        """Whether the data directory is laid out for many groups, even if it holds one yet."""
        return bool(self.groups)

    @property
    def port_map(self) -> list[GroupPort]:
        """The groups and their ports."""
        if self.group is not None:
            return [GroupPort(self.group, self.remoting_port)]
        taken = (self.ha_port, self.http_port, self.store_port or 0)
        found = port_map(self.groups, self.remoting_port, taken)
        firsts = [port for port in self.listener_ports.values() if port]
        further = [first + place for first in firsts for place in range(len(found))]
        if further and max(further) > PORT_MAX:
            raise ValueError(f"listeners would end at port {max(further)}: begin at a lower one")
        if len(set(further)) < len(further):
            raise ValueError(f"listeners would share ports: begin them {len(found)} apart or more")
        return port_map(self.groups, self.remoting_port, (*taken, *further))

    @property
    def identity(self) -> dict[str, str]:
        """Whose data directory this is; each group's own subdirectory says whose that is."""
        if self.group is not None:
            return {"cluster": self.cluster, "group": self.group}
        return {"cluster": self.cluster, "holds": "groups"}
