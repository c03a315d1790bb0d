"""Send ten messages: `python producer.py [ENDPOINT [TOPIC]]`."""

import sys

from rocketmq import ClientConfiguration, Credentials, Message, Producer

ENDPOINT = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8081"
TOPIC = sys.argv[2] if len(sys.argv) > 2 else "greetings"

producer = Producer(ClientConfiguration(ENDPOINT, Credentials()), (TOPIC,))
producer.startup()
try:
    for number in range(10):
        message = Message()
        message.topic = TOPIC
        message.body = f"hello {number} from Python".encode()
        message.keys = f"greeting-{number}"
        receipt = producer.send(message)  # raises unless it is stored on enough replicas
        print("sent", receipt.message_id)
finally:
    producer.shutdown()
