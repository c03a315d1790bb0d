"""RocketMQ's own admin tool on users and rules: its ten commands, before and after access is on.

The tool signs with the quorum's key at first, as an administrator of a new cluster does. Once
access is on it is a super user, and what signs nothing is denied.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import CliCluster, cluster_with_group

CLUSTER, SECRET = "gantry", "a-secret-of-somebody"

pytestmark = [
    pytest.mark.java,
    # Upstream's own program, which is fetched and built with this.
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


def signing(home: Path, user: str, secret: str) -> Path:
    """A home in which the tool finds whom it is to be."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {user}\nsecretKey: {secret}\n")
    return home


def quorum_key(cluster: CliCluster) -> str:
    shown = cluster.shown("local", "get", "secrets", "gantry-quorum-key", "-o", "json")
    return base64.b64decode(json.loads(shown)["data"]["key"]).decode().split()[0]


def test_users_and_rules(tmp_path: Path) -> None:
    with cluster_with_group(tmp_path / "local") as cluster:
        names = cluster.name_servers
        key = quorum_key(cluster)
        with java.Admin(signing(tmp_path / "key", "gantry", key), names) as admin:
            made = ("-c", CLUSTER, "-u", "root", "-p", SECRET, "-t", "Super")
            assert "success" in admin("createUser", *made)
            users_come_and_go(admin)
            rules_come_and_go(admin)
        assert "on" in cluster.gantry("access", "enable", "--yes")
        assert "1 users, 0 rules" not in cluster.gantry("access", "status")
        with java.Admin(signing(tmp_path / "root", "root", SECRET), names) as admin:
            assert "root" in admin("listUser", "-c", CLUSTER)
            assert "shop" in admin("getUser", "-c", CLUSTER, "-u", "shop")
            assert "success" in admin("updateTopic", "-c", CLUSTER, "-t", "orders")
        with java.Admin(signing(tmp_path / "shop", "shop", SECRET), names) as admin:
            assert "super users may" in admin(
                "createUser", "-c", CLUSTER, "-u", "x", "-p", SECRET, "-t", "Super"
            )
        with java.Admin(tmp_path / "nobody", names) as admin:
            assert "is not signed" in admin("listUser", "-c", CLUSTER)
        our_own_command_line_signs(cluster, tmp_path)


def users_come_and_go(admin: java.Admin) -> None:
    for user in ("shop", "gone"):
        made = ("-c", CLUSTER, "-u", user, "-p", SECRET, "-t", "Normal")
        assert "success" in admin("createUser", *made)
        assert "success" in admin("createUser", *made), "each broker of a cluster is asked"
    listed = admin("listUser", "-c", CLUSTER)
    assert {"root", "shop", "gone"} <= set(listed.split())
    assert SECRET not in listed
    assert "success" in admin("updateUser", "-c", CLUSTER, "-u", "gone", "-s", "disable")
    shown = admin("getUser", "-c", CLUSTER, "-u", "gone")
    assert "disable" in shown
    assert SECRET not in shown
    assert "success" in admin("deleteUser", "-c", CLUSTER, "-u", "gone")
    assert "gone" not in admin("listUser", "-c", CLUSTER).split()
    assert "short" not in admin("createUser", "-c", CLUSTER, "-u", "bad", "-p", "short")


def rules_come_and_go(admin: java.Admin) -> None:
    subject = ("-c", CLUSTER, "-s", "User:shop")
    rule = ("-r", "Topic:orders*,Group:billing", "-a", "Pub,Sub", "-i", "127.0.0.0/8")
    assert "success" in admin("createAcl", *subject, *rule, "-d", "Allow")
    shown = admin("getAcl", *subject)
    for part in ("Topic:orders*", "Group:billing", "Pub", "Sub", "127.0.0.0/8", "Allow"):
        assert part in shown, shown
    update = ("-r", "Group:billing", "-a", "Sub", "-d", "Deny")
    assert "success" in admin("updateAcl", *subject, *update)
    assert "Deny" in admin("listAcl", "-c", CLUSTER, "-s", "shop", "-r", "Group")
    assert "success" in admin("deleteAcl", *subject, "-r", "Group:billing")
    assert "Group:billing" not in admin("listAcl", "-c", CLUSTER)


def our_own_command_line_signs(cluster: CliCluster, tmp_path: Path) -> None:
    file = tmp_path / "shop.secret"
    file.write_text(SECRET + "\n")
    who = ("--access-key", "shop", "--secret-key-file", str(file))
    denied = cluster.run("produce", "orders", "--body", "x")
    assert denied.returncode != 0
    assert "is not signed" in denied.stderr, denied
    cluster.gantry("produce", "orders", "--body", "x", *who)
