"""Print what comes until Ctrl-C: `python consumer.py [ENDPOINT [TOPIC [CONSUMER_GROUP]]]`."""

import sys
import threading

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    PushConsumer,
)

ENDPOINT = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8081"
TOPIC = sys.argv[2] if len(sys.argv) > 2 else "greetings"
GROUP = sys.argv[3] if len(sys.argv) > 3 else "readers-in-python"


class Printer(MessageListener):
    def consume(self, message: Message) -> ConsumeResult:
        # Messages come on several threads: print's line must be one write.
        print(f"got {message.body.decode()}\n", end="", flush=True)
        return ConsumeResult.SUCCESS  # or FAILURE: it comes again


server = ClientConfiguration(ENDPOINT, Credentials())
consumer = PushConsumer(server, GROUP, Printer(), {TOPIC: FilterExpression()})
consumer.startup()
try:
    threading.Event().wait()
except KeyboardInterrupt:
    consumer.shutdown()
