"""The example's group with a tier: who uploads, what chaos leaves behind, and who names a damage.

The store is a pod of its own, so it outlives every broker. These tests follow one another on the
same bucket: first masters go, then two chaos scenarios strike, then an audit by Spark and
`gantry tier verify` judge what all of them left.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from gantry_operator import names
from harness import chaos, faults, installation, store
from harness.node import process_of, signal
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kube import Kube, Object
    from harness.report import Report
    from harness.trial import Trial

pytestmark = pytest.mark.usefixtures("operator")

BUCKET = "uploads"
SECRET = "store-keys"
# Small packs, so that something is always being uploaded.
PACKS = {"packBytes": 256 * 1024, "lingerMs": 500}
ROLL_PATIENCE_S = 180.0
CLAIM_PATIENCE_S = 30.0
COMMIT_PATIENCE_S = 30.0
JOB_PATIENCE_S = 300.0
CLAIM_LIMIT_S = 5.0  # status and Event follow the master's next heartbeat
FROZEN_FOR_S = 3.0
CHAOS_SCENARIOS = ("kill-during-upload", "delay-100ms")
CHAOS_REPORTS = installation.ROOT / "build" / "chaos"


@pytest.fixture(scope="module")
def uploads(trial: Trial, kube: Kube) -> Iterator[dict[str, Any]]:
    """`spec.tier` of the example's group, which uploads; its brokers were restarted for it."""
    tier: dict[str, Any] = store.start(kube, BUCKET)
    tier |= PACKS | {"credentialsSecret": {"name": SECRET}}
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET},
            "stringData": {"accessKeyId": "test", "secretAccessKey": "test"},
        }
    )
    trial.settle()
    kube.patch("brokergroup", trial.group, {"spec": {"tier": tier}})
    kube.wait_for("brokergroup", trial.group, "TierHealthy", ROLL_PATIENCE_S)
    wait_until("the brokers are all new", ROLL_PATIENCE_S, lambda: not rolling(trial))
    trial.settle()
    return tier


def test_uploads_follow_the_master(
    trial: Trial, kube: Kube, report: Report, uploads: dict[str, Any]
) -> None:
    """The process that uploads is killed; the next master holds the tier and goes on."""
    took_s = []
    for _ in range(3):
        trial.settle()
        before = status(trial)
        struck_s = faults.kill_master_process(trial)
        after = wait_until(
            "the next master holds the tier",
            CLAIM_PATIENCE_S,
            lambda before=before: held_after(trial, before["epoch"]),  # type: ignore[misc]
        )
        took_s.append(time.monotonic() - struck_s)
        assert after["uploader"] == names.ordinal(trial.master()["metadata"]["name"])
        assert after["committedOffset"] >= before["committedOffset"]
    trial.settle()
    report.add(
        "The master, which uploads, SIGKILLed",
        "until status.tier names the next",
        took_s,
        unit="s",
        limit=CLAIM_LIMIT_S,
        account=trial.account(),
    )
    claimed = [event for event in kube.list("events") if event["reason"] == "TierClaimed"]
    assert len(claimed) >= 4, [event["message"] for event in claimed]
    judge(trial, uploads)


def test_old_master_uploads_nothing_when_it_goes_on(trial: Trial, uploads: dict[str, Any]) -> None:
    """Frozen in the middle of its uploads, it comes back while another master holds the tier."""
    trial.settle()
    old = trial.master()
    before = status(trial)
    process = process_of(old)
    signal(process, "STOP")
    try:
        after = wait_until(
            "another master holds the tier",
            CLAIM_PATIENCE_S,
            lambda: held_after(trial, before["epoch"]),
        )
        time.sleep(FROZEN_FOR_S)
    finally:
        signal(process, "CONT")
    trial.settle()
    trial.account()
    claims = shown(trial, uploads)["claims"]
    epochs = [claim["epoch"] for claim in claims]
    assert epochs == sorted(epochs), claims
    assert epochs[-1] >= after["epoch"] > before["epoch"], claims
    judge(trial, uploads)


@pytest.mark.parametrize("scenario", CHAOS_SCENARIOS)
def test_scenario(trial: Trial, kube: Kube, uploads: dict[str, Any], scenario: str) -> None:
    """Faults are proved, healed and judged: queues, metadata, tier."""
    outcome = chaos.run_scenario(kube, scenario, CHAOS_REPORTS)
    assert outcome.passed, outcome.verdict
    judge(trial, uploads)


def test_audit_by_spark_finds_nothing(trial: Trial, kube: Kube, uploads: dict[str, Any]) -> None:
    """The CronJob of `spec.pipeline`, run once by hand, over all that the tests above left."""
    kube.patch(
        "brokergroup", trial.group, {"spec": {"pipeline": {"audit": {"schedule": "17 3 * * *"}}}}
    )
    cron = f"{trial.group}-audit"
    wait_until("there is a CronJob", CLAIM_PATIENCE_S, lambda: kube.get("cronjob", cron))
    job = f"{cron}-now"
    kube.delete("job", job, wait=True)
    kube.ctl("create", "job", job, f"--from=cronjob/{cron}")
    ended = wait_until("the audit ends", JOB_PATIENCE_S, lambda: job_ended(kube, job))
    said = kube.ctl("logs", f"job/{job}")
    assert ended == "Complete", said


def test_flipped_byte_is_named(trial: Trial, uploads: dict[str, Any]) -> None:
    pack = shown(trial, uploads)["state"]["packs"][-1]
    store.flip(trial.kube, uploads["url"], pack["key"], 95)
    try:
        (finding,) = verified(trial, uploads)["findings"]
        assert finding["object"] == pack["key"], finding
        assert pack["from"] <= finding["offset"] < pack["to"], finding
    finally:
        store.flip(trial.kube, uploads["url"], pack["key"], 95)
    judge(trial, uploads)


# --- what is seen ----------------------------------------------------------------------------


def status(trial: Trial) -> dict[str, Any]:
    """`status.tier` of the group."""
    group = trial.kube.get("brokergroup", trial.group)
    assert group is not None
    found: dict[str, Any] = group["status"].get("tier") or {}
    return found


def held_after(trial: Trial, epoch: int) -> dict[str, Any] | None:
    """`status.tier` once it is of a later epoch."""
    found = status(trial)
    return found if found.get("epoch", 0) > epoch else None


def rolling(trial: Trial) -> bool:
    """Whether a change of the spec is still on its way to the brokers."""
    found = trial.kube.condition("brokergroup", trial.group, "Progressing")
    return found is None or found["status"] != "False"


def judge(trial: Trial, uploads: dict[str, Any]) -> None:
    """No hole, no overlap, nothing that was not confirmed, as `gantry tier verify` sees it."""
    verdict = verified(trial, uploads)
    assert verdict["findings"] == [], verdict["findings"]


def verified(trial: Trial, uploads: dict[str, Any]) -> dict[str, Any]:
    """The verdict of `gantry tier verify` on the group's part of the store."""
    found: dict[str, Any] = gantry_tier(trial, uploads, "verify")["verdict"]
    return found


def shown(trial: Trial, uploads: dict[str, Any]) -> dict[str, Any]:
    """The group's chain by `gantry tier show`."""
    return gantry_tier(trial, uploads, "show")


def gantry_tier(trial: Trial, uploads: dict[str, Any], verb: str) -> dict[str, Any]:
    """`gantry tier VERB --json` in a controller's pod, which lends image and network."""
    pod = names.pod(names.controller_statefulset(trial.controllers), 0)
    options = ("--group", trial.group, "--endpoint", uploads["endpoint"], "--json")
    keys = ("AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
    command = ("env", *keys, "gantry", "tier", verb, uploads["url"], *options)
    # A verdict with findings ends with 1, and is an answer all the same.
    said = trial.kube.ctl(
        *("exec", pod, "--", "sh", "-c", '"$@" || [ $? = 1 ]', "sh", *command), timeout_s=120.0
    )
    answer: dict[str, Any] = json.loads(said)
    return answer


def job_ended(kube: Kube, name: str) -> str | None:
    """`Complete` or `Failed`, once it is one of them."""
    job: Object = kube.get("job", name) or {}
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return str(condition["type"])
    return None
