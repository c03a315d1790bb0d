"""The official gRPC client in Python with its defaults, as one process that goes on until killed.

Prints what ``java_grpc``'s program prints: READY, ACK key, NACK key error, GOT key attempt, DONE
key, UNSURE key error for one whose acknowledgement has no answer, FAILED key, ERROR error. `later`
sends messages for moments of the next seconds, says LATER key moment, and takes every third one
back: BACK key. `transact` sends half messages and commits every second one; of each third one of
these it says nothing, and commits it when it is asked. It signs as ``CLIENT_ACCESS_KEY``, with
``CLIENT_SECRET_KEY``, where these are set.
"""

import os
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

INVISIBLE_S, AWAIT_S, AT_ONCE = 10, 5, 16
_saying = threading.Lock()


def say(line: str) -> None:
    with _saying:
        print(line, flush=True)


def word(error: Exception) -> str:
    return "_".join(repr(error).split())


def key_of(message: Message) -> str:
    return next(iter(message.keys))


def made(topic: str, number: int) -> Message:
    message = Message()
    message.topic, message.body = topic, f"message {number}".encode()
    message.keys = f"key-{number}"
    return message


def produce(server: ClientConfiguration, topic: str, pause_ms: str) -> None:
    producer = Producer(server, (topic,))
    producer.startup()
    say("READY")
    number = 0
    while True:
        message = made(topic, number)
        try:
            producer.send(message)
            say(f"ACK key-{number}")
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            say(f"NACK key-{number} {word(error)}")
        number += 1
        time.sleep(int(pause_ms) / 1000)


def later(server: ClientConfiguration, topic: str, pause_ms: str) -> None:
    producer = Producer(server, (topic,))
    producer.startup()
    say("READY")
    number = 0
    while True:
        try:
            message = made(topic, number)
            message.delivery_timestamp = int(time.time()) + 3 + number % 4  # seconds
            receipt = producer.send(message)
            say(f"LATER key-{number} {message.delivery_timestamp * 1000}")
            if number % 3 == 0:
                producer.recall_message(topic, receipt.recall_handle)
                say(f"BACK key-{number}")
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            say(f"NACK key-{number} {word(error)}")
        number += 1
        time.sleep(int(pause_ms) / 1000)


class Checker(TransactionChecker):
    def check(self, message: Message) -> int:
        say(f"CHECKED {key_of(message)}")
        return TransactionResolution.COMMIT


def transact(server: ClientConfiguration, topic: str, pause_ms: str) -> None:
    producer = Producer(server, (topic,), checker=Checker())
    producer.startup()
    say("READY")
    number = 0
    while True:
        try:
            transaction = producer.begin_transaction()
            producer.send(made(topic, number), transaction)
            if number % 2:
                transaction.rollback()
                say(f"DROPPED key-{number}")
            elif number % 3:
                transaction.commit()
                say(f"ACK key-{number}")
            else:
                say(f"LEFT key-{number}")
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            say(f"NACK key-{number} {word(error)}")
        number += 1
        time.sleep(int(pause_ms) / 1000)


class Listener(MessageListener):
    def consume(self, message: Message) -> ConsumeResult:
        key = key_of(message)
        say(f"GOT {key} {message.delivery_attempt}")
        if message.delivery_attempt == 1 and key.endswith("7"):
            say(f"FAILED {key}")
            return ConsumeResult.FAILURE
        say(f"DONE {key}")
        return ConsumeResult.SUCCESS


def push(server: ClientConfiguration, topic: str, group: str) -> None:
    consumer = PushConsumer(server, group, Listener(), {topic: FilterExpression()})
    consumer.startup()
    say("READY")
    threading.Event().wait()


def simple(server: ClientConfiguration, topic: str, group: str) -> None:
    consumer = SimpleConsumer(server, group, {topic: FilterExpression()}, await_duration=AWAIT_S)
    consumer.startup()
    say("READY")
    while True:
        try:
            for message in consumer.receive(AT_ONCE, INVISIBLE_S) or ():
                say(f"GOT {key_of(message)} {message.delivery_attempt}")
                try:
                    consumer.ack(message)
                    say(f"DONE {key_of(message)}")
                except Exception as error:  # noqa: BLE001 - told, whatever it is
                    say(f"UNSURE {key_of(message)} {word(error)}")
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            say(f"ERROR {word(error)}")
            time.sleep(0.1)


if __name__ == "__main__":
    role, endpoints, *rest = sys.argv[1:]
    roles = {
        "produce": produce,
        "later": later,
        "transact": transact,
        "push": push,
        "simple": simple,
    }
    user, secret = os.environ.get("CLIENT_ACCESS_KEY"), os.environ.get("CLIENT_SECRET_KEY")
    credentials = Credentials(user, secret) if user and secret else Credentials()
    roles[role](ClientConfiguration(endpoints, credentials), *rest)
