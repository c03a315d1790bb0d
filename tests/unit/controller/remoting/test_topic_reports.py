"""31009 and 21, as the master of an adopted group sends them."""

import json

from gantry_controller.metadata.events import AdoptGroup
from gantry_protocol.types import Epoch
from support.controller_dispatcher import CLUSTER, NAME, Harness

GROUP = {"clusterName": CLUSTER, "brokerName": NAME}


async def test_no_table_is_given_before_the_master_has_reported(harness: Harness) -> None:
    harness.join(1)
    event = AdoptGroup(cluster=CLUSTER, name=NAME, epoch=Epoch(7), expected_epoch=Epoch(0))
    harness.apply(event)
    assert harness.elect(1).code == 0
    assert harness.call(21, GROUP).code == 2008
    signed = {"brokerId": "1", "masterEpoch": "8", "incarnation": harness.group.master_incarnation}
    topic = {"topicName": "t", "readQueueNums": 3, "attributes": {"+message.type": "FIFO"}}
    body = json.dumps({"topicConfigTable": {"t": topic}}).encode()
    assert harness.call(31009, {**GROUP, **signed, "masterEpoch": "7"}, body).code == 2000
    assert harness.call(31009, {**GROUP, **signed, "more": "true"}, body).code == 0
    assert harness.call(21, GROUP).code == 2008, "more is to come"
    assert harness.call(31009, {**GROUP, **signed}, b'{"topicConfigTable":{}}').code == 0
    table = json.loads(harness.call(21, GROUP).body)
    told = table["topicConfigTable"]["t"]
    assert (told["readQueueNums"], told["attributes"]) == (3, {"+message.type": "FIFO"})
    assert table["topicsVersion"] > 7 << 32
