"""`e2e/pipeline.sh`: Spark's jobs on a real cluster, on a bucket that pods and this machine reach.

Three questions. Do executors as pods read the same rows as `local[2]`? Do an audit on the cluster
and `gantry tier verify` here name the same object and offset, for each damage that is planted? Does
the operator's CronJob end as its tier is?
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from gantry_operator.builders.pipeline import pipeline_objects
from gantry_operator.models import BrokerGroup
from gantry_protocol.tier.keys import Shard
from harness import store
from harness.kube import Kube, Object
from harness.tiers import write_tier
from harness.waiting import wait_until
from support.tier_directory import TierDirectory, messages

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "gantry-pipeline"
IMAGE = os.environ.get("PIPELINE_IMAGE", "gantry-pipeline:dev")
CLUSTER = os.environ.get("CLUSTER_NAME", "gantry")
PLACE = Shard("demo", "7c9e6679")  # of the damaged tiers
BUCKET = "tiers"
POD_PATIENCE_S = 400.0
GROUPS, PACKS, PACK_BYTES = 2, 3, 1 << 20
EXECUTORS = 2
ON_PODS = ["--master", "k8s://https://kubernetes.default.svc", "--executors", str(EXECUTORS)]
ON_PODS += ["--executor-secret", "tier-keys"]
HERE = ["--master", "local[2]"]

# Every column of every message, in one number; and how many processes Spark used for it.
ROWS = """
import json, sys
from gantry_pipeline import session
from gantry_pipeline.kubernetes import Executors
from gantry_pipeline.session import Where
from pyspark.sql import functions as F
master, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
where = Where(master, None, Executors(count, secret="tier-keys") if count else None)
with session.running("rows", where) as spark:
    rows = spark.read.format("tier").load(url)
    total = F.sum(F.xxhash64("*").cast("decimal(38,0)")).cast("string")
    found = rows.agg(F.count("*").alias("rows"), total.alias("sum")).first().asDict()
    members = spark._jsc.sc().getExecutorMemoryStatus().size()
print(json.dumps({"found": found, "members": members}))
"""


def main() -> int:
    """Everything; 0 when all answers agree."""
    kube = Kube(Path(os.environ["KUBECONFIG"]), NAMESPACE)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(kube)
        inside = store.start(kube, BUCKET)["endpoint"]
        stage = Stage(kube, inside, store.expose(kube), Path(scratch))
        try:
            compare_executors(stage)
            compare_verdicts(stage)
            run_the_schedule(stage)
        finally:
            kube.ctl("delete", "pods", "--all", "--wait=false")
    print("The rows are the same, both verdicts name the same, and the job ends as its tier is.")
    return 0


class Stage:
    """The cluster, the bucket, and jobs between the two."""

    def __init__(self, kube: Kube, endpoint: str, outside: str, scratch: Path) -> None:
        self._kube = kube
        self._scratch = scratch
        self.endpoint = endpoint  # as pods reach the store
        self.outside = outside  # as this machine does

    def put(self, name: str, fill: Callable[[Path], None]) -> str:
        """A tier made in a directory, copied into the bucket; its URL."""
        root = self._scratch / name
        root.mkdir()
        fill(root)
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self._put(f"{name}/{path.relative_to(root)}", path.read_bytes())
        shutil.rmtree(root)
        return f"s3://{BUCKET}/{name}"

    def _put(self, key: str, data: bytes) -> None:
        connection = http.client.HTTPConnection(self.outside.removeprefix("http://"), timeout=30)
        try:
            connection.request("PUT", f"/{BUCKET}/{key}", body=data, headers=store.HEADERS)
            status = connection.getresponse().status
        finally:
            connection.close()
        check(status == 200, f"PUT {key}: {status}")

    def job(self, name: str, command: list[str], url: str) -> tuple[int, str, int, float]:
        """A pod that runs `command`: exit code, last line, executors that were seen, seconds."""
        began_s = time.monotonic()
        self._kube.apply(driver(name, command, url, self.endpoint))
        executors: set[str] = set()

        def ended() -> Object | None:
            for pod in self._kube.list("pods", "spark-role=executor"):
                if (pod.get("status") or {}).get("phase") == "Running":
                    executors.add(pod["metadata"]["name"])
            found = self._kube.get("pod", name)
            states = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
            state: Object | None = (states[0].get("state") or {}).get("terminated")
            return state

        state = wait_until(f"pod {name} ends", POD_PATIENCE_S, ended, poll_s=0.5)
        log = self._kube.ctl("logs", name).strip()
        print(f"  {name}: exit {state['exitCode']}, {time.monotonic() - began_s:.0f} s")
        return state["exitCode"], log, len(executors), time.monotonic() - began_s

    def scheduled(self, name: str, url: str) -> tuple[str, str, int]:
        """A job of the operator's CronJob: how it ended, its log, how many pods it took."""
        spec = {
            "controllerRef": {"name": PLACE.cluster},
            "tier": {
                "url": url,
                "endpoint": self.endpoint,
                "credentialsSecret": {"name": "tier-keys"},
            },
            "pipeline": {"audit": {"schedule": "0 0 29 2 *", "image": IMAGE}},
        }
        meta = {"name": "orders", "namespace": NAMESPACE, "uid": PLACE.uid}
        group = BrokerGroup.parse({"metadata": meta, "spec": spec})
        (job,) = pipeline_objects(group, image="gantry:dev")
        job["metadata"].pop("ownerReferences")  # there is no such group here
        self._kube.apply(job)
        self._kube.ctl("delete", "job", name, "--ignore-not-found")
        self._kube.ctl("create", "job", name, "--from=cronjob/orders-audit")

        def ended() -> str | None:
            found = self._kube.get("job", name) or {}
            for one in (found.get("status") or {}).get("conditions") or ():
                if one["status"] == "True" and one["type"] in ("Complete", "Failed"):
                    reason = f" ({one['reason']})" if one["type"] == "Failed" else ""
                    return f"{one['type']}{reason}"
            return None

        state = wait_until(f"job {name} ends", POD_PATIENCE_S, ended, poll_s=0.5)
        pods = self._kube.list("pods", f"job-name={name}")
        return state, self._kube.ctl("logs", f"job/{name}").strip(), len(pods)


def compare_executors(stage: Stage) -> None:
    """The audit and every row, by two executors and by one machine."""

    def fill(root: Path) -> None:
        write_tier(root, GROUPS, PACKS, PACK_BYTES)

    url = stage.put("sound", fill)
    print("Executors as pods against local[2]")
    accounts, rows = [], []
    for name, where, count in (("here", HERE, 0), ("pods", ON_PODS, EXECUTORS)):
        audit = ["gantry", "pipeline", "audit", "--json", *where]
        code, log, seen, _ = stage.job(f"audit-{name}", audit, url)
        check(code == 0, f"the audit by {name} ended with {code}: {log[-2000:]}")
        check(seen == count, f"{seen} executors ran for {name}, {count} were wanted")
        account = json.loads(log.splitlines()[-1])
        account.pop("seconds")
        accounts.append(account)
        script = ["python3", "-c", ROWS, where[1], url, str(count)]
        code, log, _, _ = stage.job(f"rows-{name}", script, url)
        check(code == 0, f"the rows by {name} ended with {code}: {log[-2000:]}")
        answer = json.loads(log.splitlines()[-1])
        check(answer["members"] == 1 + count, f"{answer['members']} processes for {name}")
        rows.append(answer["found"])
        print(f"    {account['faults']} faults, {rows[-1]}")
    check(accounts[0] == accounts[1], f"accounts differ: {accounts}")
    check(rows[0] == rows[1], f"rows differ: {rows}")


def compare_verdicts(stage: Stage) -> None:
    """A sound tier and three damages: the audit on the cluster and verify here name the same."""
    print("An audit on the cluster against gantry tier verify here")
    for name, damage in DAMAGES.items():

        def fill(root: Path, damage: Callable[[TierDirectory], None] = damage) -> None:
            damage(a_tier(root))

        url = stage.put(name, fill)
        audit = ["gantry", "pipeline", "audit", "--json", *HERE]
        code, log, _, _ = stage.job(f"verdict-{name}", audit, url)
        check(code == (0 if name == "nothing" else 1), f"{name}: exit {code}: {log[-2000:]}")
        account = json.loads(log.splitlines()[-1])
        audited = named(account["findings"])
        verified = verdict(url, stage.outside)
        print(f"    audit {sorted(audited, key=str)}\n    verify {sorted(verified, key=str)}")
        check(bool(audited) == (name != "nothing"), f"{name}: {audited}")
        check(audited == verified, f"{name}: audit {audited}, verify {verified}")


def run_the_schedule(stage: Stage) -> None:
    """The operator's CronJob, started by hand: damage fails it at once, without another try."""
    print("The CronJob of spec.pipeline.audit")
    for name in ("nothing", "flipped-bit"):
        state, log, pods = stage.scheduled(name, f"s3://{BUCKET}/{name}")
        print(f"  {name}: {state}, {pods} pods; the log ends with: {log.splitlines()[-1]}")
        wanted = "Complete" if name == "nothing" else "Failed (PodFailurePolicy)"
        check(state == wanted and pods == 1, f"{name}: {state} with {pods} pods: {log[-2000:]}")
        check((name == "nothing") == ("fault T4" not in log), f"{name}: {log[-2000:]}")


def verdict(url: str, endpoint: str) -> set[tuple[object, ...]]:
    """What `gantry tier verify` on this machine names."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gantry_cli", "tier", "verify", url, "--json"),
            *("--endpoint", endpoint),
        ],
        env=os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    check(done.returncode in (0, 1), f"verify ended with {done.returncode}: {done.stderr}")
    groups = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return named([one for group in groups for one in group["verdict"]["findings"]])


def named(findings: list[Object]) -> set[tuple[object, ...]]:
    """What tells one finding from another."""
    return {tuple(one.get(key) for key in ("rule", "object", "byte", "offset")) for one in findings}


# ---- tiers


def a_tier(root: Path) -> TierDirectory:
    """Three packs under two masters."""
    tier = TierDirectory(root, uid=PLACE.uid, cluster=PLACE.cluster)
    tier.claim(1)
    tier.append(messages("orders", 200))
    tier.append(messages("orders", 100))
    tier.claim(2)
    tier.append(messages("orders", 50))
    return tier


def remove_a_pack(tier: TierDirectory) -> None:
    tier.path(tier.state.packs[1].key).unlink()


def flip_a_bit(tier: TierDirectory) -> None:
    tier.flip(tier.state.packs[2].key, 95)


def fabricate_an_overlap(tier: TierDirectory) -> None:
    tier.forge_overlap()


DAMAGES: dict[str, Callable[[TierDirectory], None]] = {
    "nothing": lambda _: None,
    "removed-pack": remove_a_pack,
    "flipped-bit": flip_a_bit,
    "overlap": fabricate_an_overlap,
}


# ---- the cluster


def prepare(kube: Kube) -> None:
    """A namespace under the restricted standard, the keys, and the rights of a driver."""
    kube.create_namespace()
    kube.ctl("delete", "pods", "--all", "--grace-period=0", "--force")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tier-keys"},
        "stringData": {"accessKeyId": "test", "secretAccessKey": "test"},
    }
    kube.apply(secret, *(one for one in example() if one["kind"] != "Job"))


def example() -> list[Object]:
    """What people are shown: the driver's rights, and a job."""
    text = (ROOT / "examples" / "pipeline" / "executors.yaml").read_text(encoding="utf-8")
    return [one for one in yaml.safe_load_all(text) if one]


def driver(name: str, command: list[str], url: str, endpoint: str) -> Object:
    """The example's pod with another command, tier and image."""
    (job,) = [one for one in example() if one["kind"] == "Job"]
    template = job["spec"]["template"]
    (container,) = template["spec"]["containers"]
    container |= {"image": IMAGE, "command": command}
    container.pop("args")
    settings = {
        "GANTRY_TIER": url,
        "AWS_ENDPOINT_URL": endpoint,
        "GANTRY_PIPELINE_IMAGE": IMAGE,
    }
    for one in container["env"]:
        if one["name"] in settings:
            one["value"] = settings[one["name"]]
    metadata = {"name": name, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def check(holds: bool, sentence: str) -> None:
    """End with a sentence that says what is wrong."""
    if not holds:
        raise SystemExit(f"error: {sentence}")


if __name__ == "__main__":
    sys.exit(main())
