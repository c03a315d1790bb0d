"""A default producer of RocketMQ's C++ client that sends without a pause, one after another.

    producer.py NAMESERVERS TOPIC SECONDS [PAUSE_MS]

Each send is a line of JSON, as `interop/go` prints it.
"""

import json
import os
import sys
import time

from rocketmq.client import Message, Producer


def main(names: str, topic: str, seconds: str, pause_ms: str = "0") -> None:
    """Send until the time is over."""
    producer = Producer("interop-cpp")
    producer.set_namesrv_addr(names)
    producer.start()
    stop = time.time() + float(seconds)
    number = 0
    while time.time() < stop:
        key = f"cpp-{os.getpid()}-{number}"
        number += 1
        message = Message(topic)
        message.set_keys(key)
        message.set_body(key)
        said = {"key": key, "begin": _now_ms(), "msgId": ""}
        try:
            answer = producer.send_sync(message)
        except Exception as error:  # noqa: BLE001 - whatever the client says is a result
            said["result"] = str(error)
        else:
            said["result"] = "SEND_OK" if answer.status == 0 else f"status {int(answer.status)}"
            said["msgId"] = str(answer.msg_id)
        said["end"] = _now_ms()
        print(json.dumps(said), flush=True)
        time.sleep(int(pause_ms) / 1000)
    producer.shutdown()


def _now_ms() -> int:
    return int(time.time() * 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
