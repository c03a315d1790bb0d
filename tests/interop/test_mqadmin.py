"""RocketMQ's own admin tool, 5.3.3, on a group of ours: every command of set (f), and a few more.

One cluster lives through the whole story: a topic is made, messages are sent, an unmodified push
consumer reads them, is looked at, is moved back, and everything is deleted again. Each command must
say what matters; the tool prints a stack trace where something failed, and ends with status 0 then.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import GROUP, CliCluster, cluster_with_group, settled

CLUSTER, TOPIC, CONSUMERS = "gantry", "administered", "billing"
PATIENCE_S = 60.0
STACK_TRACE = re.compile(r"^\s+at [\w.$]+\(", re.MULTILINE)

pytestmark = [
    pytest.mark.java,
    # Upstream's own programs, which are fetched and built with these.
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


class Tools:
    """mqadmin, and the clients it looks at."""

    def __init__(
        self, cluster: CliCluster, names: str, admin: java.Admin, probe: str, home: Path
    ) -> None:
        self.cluster = cluster
        self._names, self._admin, self._probe, self._home = names, admin, probe, home

    def mqadmin(self, command: str, *args: str) -> str:
        """What a command prints; it must succeed."""
        said = self.tried(command, *args)
        assert not STACK_TRACE.search(said), said
        return said

    def tried(self, command: str, *args: str) -> str:
        """What a command prints, whether it succeeds or not."""
        return self._admin(command, *args)

    def client(self, *args: str) -> subprocess.Popen[str]:
        """A Java client, as a process."""
        return subprocess.Popen(
            [
                *("java", "-cp", self._probe, f"-Duser.home={self._home}", "-Xmx256m"),
                *(*java.SHORT_LIVED, "dev.gantry.interop.Probe", args[0], self._names, *args[1:]),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    home = tmp_path_factory.mktemp("mqadmin")
    probe = java.clients()
    with cluster_with_group(tmp_path_factory.mktemp("cluster") / "local") as cluster:
        names = cluster.name_servers
        sign_with_the_quorums_key(cluster, home)
        with java.Admin(home, names) as admin:
            yield Tools(cluster, names, admin, probe, home)


def sign_with_the_quorums_key(cluster: CliCluster, home: Path) -> None:
    """Give the tools the key where RocketMQ's own look for one, as `docs/controllers.md` says."""
    shown = cluster.shown("local", "get", "secrets", "gantry-quorum-key", "-o", "json")
    key = base64.b64decode(json.loads(shown)["data"]["key"]).decode().split()[0]
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text(f"accessKey: gantry\nsecretKey: {key}\n")


def eventually(look: Callable[[], str], pattern: str) -> re.Match[str]:
    """What `look` sees once it sees this."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = look()
        found = re.search(pattern, seen)
        if found is not None or time.monotonic() > deadline:
            assert found is not None, seen
            return found


def test_administration_of_a_group(tools: Tools) -> None:
    the_cluster_is_listed(tools)
    a_topic_is_made(tools)
    message_id = a_message_is_sent_and_found(tools)
    a_consumer_group_is_made(tools)
    consumer = tools.client("push", TOPIC, CONSUMERS)
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline().strip() == "READY"
        members_and_progress_are_shown(tools)
        the_group_is_moved_while_it_runs(tools, consumer)
        a_member_is_asked(tools, message_id)
        more_is_looked_at(tools)
    finally:
        consumer.kill()
        consumer.communicate()
    the_stopped_group_is_moved(tools)
    settings_are_shown_and_not_changed(tools)
    what_would_be_cleaned_is_clean(tools)
    everything_is_deleted(tools)


def the_cluster_is_listed(tools: Tools) -> None:
    listed = tools.mqadmin("clusterList")
    rows = re.findall(rf"{CLUSTER}\s+{GROUP}\s+(\d)\s+\S+:\d+\s+(\S+)", listed)
    assert len(rows) == 3, listed
    assert {version.partition("_")[0] for _, version in rows} == {"GANTRY"}, listed
    group = tools.cluster.wait_until(settled)
    (master,) = [one for one in group["members"] if one["brokerId"] == group["masterBrokerId"]]
    status = tools.mqadmin("brokerStatus", "-b", master["address"])
    assert re.search(r"brokerVersionDesc\s*: GANTRY_", status), status
    assert re.search(r"putTps\s*: \d", status), status


def a_topic_is_made(tools: Tools) -> None:
    made = tools.mqadmin("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2")
    assert "create topic to" in made, made
    assert "success" in made, made
    assert TOPIC in tools.mqadmin("topicList").split()
    route = tools.mqadmin("topicRoute", "-t", TOPIC)
    assert f'"brokerName":"{GROUP}"' in route, route
    assert '"readQueueNums":2' in route, route
    assert len(offsets(tools.mqadmin("topicStatus", "-t", TOPIC))) == 2


def offsets(status: str) -> dict[int, tuple[int, int]]:
    """First and next offset by queue, as `topicStatus` prints them."""
    rows = re.findall(rf"^{GROUP}\s+(\d+)\s+(\d+)\s+(\d+)", status, re.MULTILINE)
    return {int(queue): (int(first), int(following)) for queue, first, following in rows}


def a_message_is_sent_and_found(tools: Tools) -> str:
    sent = tools.mqadmin("sendMessage", "-t", TOPIC, "-p", "by the tool", "-c", "TagA", "-k", "k1")
    assert "SEND_OK" in sent, sent
    status = tools.mqadmin("topicStatus", "-t", TOPIC)
    assert sum(following for _, following in offsets(status).values()) == 1, status
    printed = tools.mqadmin("printMsg", "-t", TOPIC, "-d", "true")
    assert "by the tool" in printed, printed
    found = re.search(r"msgId=([0-9A-F]{32}), ", printed)
    assert found is not None, printed
    shown = tools.mqadmin("queryMsgById", "-t", TOPIC, "-i", found.group(1))
    assert re.search(r"Keys:\s+\[k1\]", shown), shown
    return found.group(1)


def a_consumer_group_is_made(tools: Tools) -> None:
    made = tools.mqadmin("updateSubGroup", "-c", CLUSTER, "-g", CONSUMERS, "-r", "3")
    assert "success" in made, made
    assert "retryMaxTimes=3" in made, made


def members_and_progress_are_shown(tools: Tools) -> None:
    eventually(  # the tool fails until the group's retry topic has a route
        lambda: tools.tried("consumerProgress", "-g", CONSUMERS),
        rf"(?m)^{TOPIC}\s+{GROUP}\s+\d\s+1\s+1\s+0\s",
    )
    all_groups = tools.mqadmin("consumerProgress")
    assert re.search(rf"{CONSUMERS}\s+1\s", all_groups), all_groups
    connected = tools.mqadmin("consumerConnection", "-g", CONSUMERS)
    assert "CONSUME_PASSIVELY" in connected, connected
    assert re.search(rf"{TOPIC}\s+TagA", connected), connected


def the_group_is_moved_while_it_runs(tools: Tools, consumer: subprocess.Popen[str]) -> None:
    assert consumer.stdout is not None
    assert consumer.stdout.readline().startswith("MSG ")
    moved = tools.mqadmin("resetOffsetByTime", "-g", CONSUMERS, "-t", TOPIC, "-s", "0")
    assert re.search(rf"{GROUP}\s+\d\s+0", moved), moved
    again = consumer.stdout.readline()
    assert again.startswith("MSG "), "it consumes the message again, without a restart"


def a_member_is_asked(tools: Tools, message_id: str) -> None:
    connected = tools.mqadmin("consumerConnection", "-g", CONSUMERS)
    client = re.search(r"(\S+@\S+)", connected)
    assert client is not None, connected
    member = client.group(1)
    told = tools.mqadmin("consumerStatus", "-g", CONSUMERS, "-i", member)
    assert re.search(rf"(?m)^{TOPIC}\s+{GROUP}\s+\d\s+ProcessQueueInfo", told), told
    asked = ["-t", TOPIC, "-i", message_id, "-g", CONSUMERS, "-d", member]
    consumed = tools.mqadmin("queryMsgById", *asked)
    assert "consumeResult=CR_SUCCESS" in consumed, consumed


def master_address(tools: Tools) -> str:
    group = tools.cluster.wait_until(settled)
    (master,) = [one for one in group["members"] if one["brokerId"] == group["masterBrokerId"]]
    return str(master["address"])


def more_is_looked_at(tools: Tools) -> None:
    """Commands beyond set (f), while a consumer is connected."""
    master = master_address(tools)
    eventually(  # the tool shows a queue once something of it is committed
        lambda: tools.mqadmin("brokerConsumeStats", "-b", master, "-t", "10000"),
        rf"{TOPIC}\s+{CONSUMERS}\s+{GROUP}\s+\d",
    )
    for _ in range(3):
        tools.mqadmin("brokerConsumeStats", "-b", master, "-t", "10000")
    eventually(lambda: tools.mqadmin("statsAll", "-t", TOPIC), rf"{TOPIC}\s+{CONSUMERS}\s")
    entries = [
        tools.mqadmin("queryCq", "-b", master, "-t", TOPIC, "-q", queue, "-i", "0", "-c", "9")
        for queue in ("0", "1")
    ]
    assert sum("physicSize=" in printed for printed in entries) == 1, entries
    assert "=" in tools.mqadmin("producer", "-b", master)
    cloned = tools.mqadmin(
        "cloneGroupOffset", "-s", CONSUMERS, "-d", "copied", "-t", TOPIC, "-o", "true"
    )
    assert "clone group offset success" in cloned, cloned
    args = ["-c", CLUSTER, "-t", "typed", "-r", "1", "-w", "1", "-a", "+message.type=FIFO"]
    typed = tools.mqadmin("updateTopic", *args)
    assert "success" in typed, typed
    refused = tools.tried("updateTopic", *args[:-1], "+colour=red")
    assert "'colour' is no attribute of topics" in refused, refused


def what_would_be_cleaned_is_clean(tools: Tools) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        said = tools.mqadmin(command, "-c", CLUSTER)
        assert "success" in said, said


def the_stopped_group_is_moved(tools: Tools) -> None:
    eventually(
        lambda: tools.mqadmin("resetOffsetByTime", "-g", CONSUMERS, "-t", TOPIC, "-s", "now"),
        rf"{GROUP}\s+\d\s+\d",
    )
    mode = tools.mqadmin(
        "setConsumeMode", "-c", CLUSTER, "-t", TOPIC, "-g", CONSUMERS, "-m", "PULL"
    )
    assert "success" in mode, mode


def settings_are_shown_and_not_changed(tools: Tools) -> None:
    shown = tools.mqadmin("getBrokerConfig", "-c", CLUSTER)
    assert re.search(rf"brokerName\s+=\s+{GROUP}", shown), shown


def everything_is_deleted(tools: Tools) -> None:
    gone = tools.mqadmin("deleteSubGroup", "-c", CLUSTER, "-g", CONSUMERS, "-r", "true")
    assert "success" in gone, gone
    gone = tools.mqadmin("deleteTopic", "-c", CLUSTER, "-t", TOPIC)
    assert "success" in gone, gone
    left = tools.mqadmin("topicList").split()
    assert TOPIC not in left
    assert f"%RETRY%{CONSUMERS}" not in left
