"""The last act of `make demo-kind` with the real tools, on a store that refuses who has no keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import demo
from gantry_broker.tier.stores.credentials import Credentials
from gantry_broker.tier.stores.opening import open_store
from gantry_broker.tier.stores.owner import own_prefix
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.models import BrokerGroup, ControllerGroup
from harness import installation, store
from support.moto_server import make_bucket, moto_server
from support.store_contract import PLACE

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from harness.kube import Kube

Object = dict[str, Any]


class Pods:
    """Runs here what is executed in a pod, with the environment that the operator gives it.

    Args:
        objects: what the operator makes.
        keys: the directory that stands for the mounted Secret.
    """

    namespace = "gantry"

    def __init__(self, objects: list[Object], keys: Path) -> None:
        self._sets = {o["metadata"]["name"]: o for o in objects if o["kind"] == "StatefulSet"}
        self._keys = keys
        self.ran: list[str] = []

    def ctl(self, verb: str, pod: str, dashes: str, program: str, *args: str) -> str:
        assert (verb, dashes, program) == ("exec", "--", "gantry")
        spec = self._sets[pod.rpartition("-")[0]]["spec"]["template"]["spec"]
        given = {e["name"]: e["value"] for e in spec["containers"][0]["env"] if "value" in e}
        for name, value in given.items():
            given[name] = value.replace(names.TIER_KEYS_DIR, str(self._keys))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "gantry_cli", *args],
            env=given,
            capture_output=True,
            text=True,
            check=False,
        )
        # 0 and 1 are judgements (nothing was uploaded here, which verify finds); 2 is a failure.
        assert done.returncode in (0, 1), done.stderr
        assert "orders" in done.stdout
        self.ran.append(args[1])
        return done.stdout


def made(tier: Object) -> list[Object]:
    """What the operator makes of the demonstration's groups."""
    meta = {"namespace": "gantry", "uid": "some-uid"}
    controllers = ControllerGroup.parse(
        {"metadata": meta | {"name": installation.CONTROLLERS}, "spec": {}}
    )
    group = BrokerGroup.parse(
        {"metadata": meta | {"name": installation.GROUP}, "spec": {"tier": tier}}
    )
    return [
        *controller_objects(controllers, image="gantry:1"),
        *broker_objects(group, controllers, image="gantry:1", replicas=3),
    ]


def test_the_tier_is_judged_where_its_keys_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, key in store.keys("gantry")["stringData"].items():
        (tmp_path / name).write_text(key)
    with moto_server(tmp_path / "log") as port:
        bucket = make_bucket(port)
        tier = {
            "url": f"s3://{bucket}/gantry",
            "endpoint": f"http://127.0.0.1:{port}",
            "credentialsSecret": {"name": store.KEYS},
        }
        opened = open_store(tier["url"], Credentials("test", "test"), endpoint=tier["endpoint"])
        asyncio.run(own(opened))
        pods = Pods(made(tier), tmp_path)
        demo.judge_tier(cast("Kube", pods), tier)
    assert pods.ran == ["show", "verify"]
    assert "gantry tier verify" in capsys.readouterr().out


async def own(opened: Any) -> None:
    await own_prefix(opened, PLACE, "orders", 1, timeout_s=30.0)
