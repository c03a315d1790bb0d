"""Equal events give an equal state in every process, whatever its hash seed.

A ``set`` of strings iterates in an order that differs from process to process; one such loop in
``apply`` and the replicas of the log disagree. So one story runs in processes of several seeds.
"""

import os
import subprocess
import sys
from pathlib import Path

STORY = """
from hashlib import sha256
from gantry_controller.metadata import snapshot
from gantry_controller.metadata.events import (
    CleanBrokerData, CreateTopic, DeleteTopic, ImportBroker, ForgetImport, RemoveGroup)
from gantry_controller.metadata.topic_table import Topic
from support.metadata_world import World, consumers, three_in_sync, told_by_tools

world = three_in_sync()
four = Topic(4, 4, 6)
for topic in ("b", "a", "zeta", "Orders", "%RETRY%g"):
    world.apply(CreateTopic(cluster="c", name="", topic=topic, config=four))
for number, name in enumerate(("x", "y", "w", "z")):
    world.apply(ImportBroker(cluster="old", name=name, broker_id=0, address=f"h:{number}",
        topics={topic: four for topic in ("q", "p", "r", "TBW102", "a")}))
consumers(world)
told_by_tools(world)
world.elect(live=[3, 2])
world.alter([3, 1, 2], live=[1, 2, 3])
world.clean([2])
world.apply(DeleteTopic(cluster="", name="", topic="a"))
world.apply(ForgetImport(cluster="old", name="w", address="h:2"))
world.elect(live=[1, 3])
print(world.state.digest(), world.state.groups_with("q"))
print(sha256(b"".join(snapshot.take(world.state))).hexdigest())
"""


def run(seed: str) -> str:
    tests = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tests)}
    return subprocess.run(
        [sys.executable, "-c", STORY], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_digest_does_not_depend_on_the_hash_seed() -> None:
    outputs = {seed: run(seed) for seed in ("0", "1", "77")}
    assert len(set(outputs.values())) == 1, outputs
    assert int(outputs["0"].split()[0]) > 0
