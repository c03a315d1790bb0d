"""A push consumer of RocketMQ's C++ client: prints the body of each message on a line.

    consumer.py NAMESERVERS TOPIC GROUP

It ends when its standard input does.
"""

import sys

from rocketmq.client import PushConsumer, RecvMessage


def main(names: str, topic: str, group: str) -> None:
    """Consume until told to stop."""
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(names)

    def received(message: RecvMessage) -> None:
        sys.stdout.write(f"{message.body.decode()}\n")  # at once: the client has many threads
        sys.stdout.flush()

    consumer.subscribe(topic, received)
    consumer.start()
    sys.stdin.read()
    consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
