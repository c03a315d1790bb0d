"""Settings: what the environment of a pod makes of them, and which sentence a mistake gets."""

from pathlib import Path

import pytest
from gantry_controller.settings import (
    ControllerSettings,
    members_of,
    parse_peers,
    read_token,
)
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import load_settings
from gantry_protocol.tls.listeners import parse_listeners
from gantry_protocol.types import NodeId

THREE = "1=c-0.c,2=c-1.c.ns.svc:9,3=10.0.0.3:1:2:3"


def load(**environment: str) -> ControllerSettings:
    named = {f"GANTRY_{key.upper()}": value for key, value in environment.items()}
    return load_settings(ControllerSettings, env=named)


def test_pod_of_a_stateful_set() -> None:
    settings = load(name="c-1", peers=THREE, bind="10.0.0.2", cluster_uid="u")
    assert (settings.number, settings.advertised) == (2, "10.0.0.2")
    assert [peer.node_id for peer in settings.members] == [1, 2, 3]


def test_addresses_of_a_peer() -> None:
    first, second, third = parse_peers(THREE)
    assert (first.raft_address, first.remoting_address) == ("c-0.c:9879", "c-0.c:9878")
    assert first.http_url() == "http://c-0.c:9880"
    assert (second.name, second.raft_address) == ("c-1", "c-1.c.ns.svc:9")
    assert (third.name, third.raft_address) == ("10.0.0.3", "10.0.0.3:1")
    assert (third.remoting_address, third.http_url()) == ("10.0.0.3:2", "http://10.0.0.3:3")


def test_node_alone_is_its_own_quorum() -> None:
    settings = load(name="solo", advertise="10.0.0.9", raft_port="7000")
    (peer,) = settings.members
    assert (peer.node_id, peer.raft_address) == (1, "10.0.0.9:7000")


@pytest.mark.parametrize("peers", ["", "1=10.0.0.1"])
def test_quorum_of_one_has_nobody_to_come_back_to(peers: str) -> None:
    with pytest.raises(ConfigError, match="cannot rejoin, it has no peers to fill it"):
        load(name="c-0", peers=peers, rejoin="true")
    assert load(name="c-0", peers=peers, rejoin="true", join="true").rejoin
    assert load(name="c-0", peers=THREE, rejoin="true").rejoin


def test_listeners_have_a_name_and_a_port_each() -> None:
    assert parse_listeners(" outside=10930, lb-2=0,") == {"outside": 10930, "lb-2": 0}
    assert load(listeners="outside=10930").listeners == "outside=10930"


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        ("outside", "'outside' is not name=port"),
        ("outside=65536", "'outside=65536' is not name=port"),
        ("Outside=1", "'Outside=1' is not name=port"),
        ("a=1,a=2", "a listener of that name has a port already"),
        ("a=1,b=2,c=3,d=4,e=5", "there are 5 listeners, and 4 at most"),
    ],
)
def test_other_listeners_are_refused(listeners: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(listeners=listeners)


def test_own_number_wins_over_the_name() -> None:
    assert load(name="c-0", node_id="3", peers=THREE).number == 3


def test_a_node_that_joins_need_not_be_a_founder() -> None:
    joiner = ControllerSettings(name="c-3", join=True, peers="1=h1,2=h2,3=h3", bind="10.0.0.4")
    assert [peer.host for peer in joiner.members] == ["h1", "h2", "h3", "10.0.0.4"]
    assert ControllerSettings(name="c-3", join=True, bind="10.0.0.4").members[0].node_id == 4


def test_members_are_where_the_settings_say_else_where_the_log_says() -> None:
    settings = ControllerSettings(name="c-0", peers="1=h1,2=new", raft_port=0)
    contacts = {1: "h1:0:0:0", 2: "old:1:2:3", 4: "h4:1:2:3", 5: "no:port", 6: "[::1]:1:2:3"}
    members = members_of(settings, {NodeId(node): text for node, text in contacts.items()})
    assert {node: peer.host for node, peer in members.items()} == {
        1: "h1",
        2: "new",
        4: "h4",
        6: "::1",
    }
    assert members[NodeId(4)].contact == "h4:1:2:3"


def test_ports_of_a_node_alone_may_be_picked() -> None:
    alone = ControllerSettings(name="c-0", raft_port=0, remoting_port=0, http_port=0)
    (peer,) = alone.members
    assert members_of(alone, {peer.node_id: peer.contact}) == {peer.node_id: peer}


def test_ipv6_peer() -> None:
    (peer,) = parse_peers("1=[fd00::1]:9879")
    assert peer.raft_address == "[fd00::1]:9879"


@pytest.mark.parametrize(
    ("name", "peers", "size", "joins", "founds"),
    [
        ("c-0", "1=h0", "1", False, True),
        ("c-0", "1=h0", "3", False, False),  # alone it would found another quorum
        ("c-1", "1=h0", "3", True, False),
        ("c-2", "1=h0", "3", True, False),
        ("c-0", THREE, "3", False, True),
        ("c-0", THREE, "5", False, False),
        ("c-4", THREE, "5", True, False),
        ("c-0", THREE, "1", False, False),
        ("c-2", THREE, "1", False, False),  # on its way out
        ("c-0", "", "1", False, True),
        ("c-0", "", "3", False, False),
    ],
)
def test_a_quorum_of_another_size_founds_nothing_and_takes_in_who_is_new(
    name: str, peers: str, size: str, joins: bool, founds: bool
) -> None:
    settings = load(name=name, peers=peers, quorum_size=size)
    assert (settings.joins, settings.founds) == (joins, founds)


def test_a_node_beyond_the_size_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"node 4 .c-3. is not among the peers"):
        load(name="c-3", peers="1=h0", quorum_size="3")


def test_a_member_whose_log_is_damaged_rejoins_a_quorum_that_grew_out_of_it_alone() -> None:
    assert load(name="c-0", peers="1=h0", quorum_size="3", rejoin="true").rejoin


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({"name": "c-7", "peers": THREE}, "node 8 .c-7. is not among the peers"),
        ({"peers": "1=a,1=b"}, "numbers start at 1 and come once"),
        ({"peers": "0=a"}, "numbers start at 1 and come once"),
        ({"peers": "a,b"}, "is not number=host"),
        ({"peers": "1=a:99999"}, "port"),
        ({"peers": ","}, "names no member"),
        ({"bind": "localhost"}, "not an IP address"),
        ({"raft_port": "70000"}, "GANTRY_RAFT_PORT='70000'"),
        ({"election_timeout_ms": "1"}, "GANTRY_ELECTION_TIMEOUT_MS='1'"),
        ({"cluster_uid": "x" * 200}, "GANTRY_CLUSTER_UID"),
    ],
)
def test_mistakes_are_named(environment: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        load(**environment)


def test_every_setting_is_described() -> None:
    for name, field in ControllerSettings.model_fields.items():
        assert field.description, name


class TestToken:
    def test_is_stripped(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("abc\n")
        assert read_token(file) == "abc"

    def test_missing_and_empty(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            read_token(tmp_path / "none")
        (tmp_path / "empty").write_text(" \n")
        with pytest.raises(ConfigError, match="is empty"):
            read_token(tmp_path / "empty")
