// The official gRPC client in Node with its defaults, as one process that goes on until killed.
//
// Prints what `java_grpc`'s program prints: READY, ACK key, NACK key error, GOT key attempt,
// DONE key, UNSURE key error, FAILED key, ERROR error. `later` sends messages for moments of the next seconds, says
// LATER key moment, and takes every third one back: BACK key.
const { Producer, PushConsumer, SimpleConsumer, ConsumeResult } = require('rocketmq-client-nodejs');

const [role, endpoints, topic, last] = process.argv.slice(2);
const INVISIBLE_MS = 10000, AWAIT_MS = 5000, AT_ONCE = 16;
const server = { endpoints, namespace: '' };
const subscriptions = new Map([[topic, '*']]);

const say = line => process.stdout.write(line + '\n');
const word = error => String(error).split(/\s+/).join('_');
const sleep = ms => new Promise(done => setTimeout(done, ms));

async function produce() {
  const producer = new Producer({ ...server, topics: [topic] });
  await producer.startup();
  say('READY');
  for (let number = 0; ; number++) {
    const key = `key-${number}`;
    try {
      await producer.send({ topic, keys: [key], body: Buffer.from(`message ${number}`) });
      say(`ACK ${key}`);
    } catch (error) {
      say(`NACK ${key} ${word(error)}`);
    }
    await sleep(Number(last));
  }
}

async function later() {
  const producer = new Producer({ ...server, topics: [topic] });
  await producer.startup();
  say('READY');
  for (let number = 0; ; number++) {
    const key = `key-${number}`;
    const deliveryTimestamp = new Date(Date.now() + 3000 + 700 * (number % 5));
    try {
      const body = Buffer.from(`message ${number}`);
      const receipt = await producer.send({ topic, keys: [key], body, deliveryTimestamp });
      say(`LATER ${key} ${deliveryTimestamp.getTime()}`);
      if (number % 3 === 0) {
        await producer.recallMessage(topic, receipt.recallHandle);
        say(`BACK ${key}`);
      }
    } catch (error) {
      say(`NACK ${key} ${word(error)}`);
    }
    await sleep(Number(last));
  }
}

async function consume(message) {
  const key = message.keys[0];
  say(`GOT ${key} ${message.deliveryAttempt}`);
  if (message.deliveryAttempt === 1 && key.endsWith('7')) {
    say(`FAILED ${key}`);
    return ConsumeResult.FAILURE;
  }
  say(`DONE ${key}`);
  return ConsumeResult.SUCCESS;
}

async function push() {
  const options = { ...server, consumerGroup: last, subscriptions };
  await new PushConsumer({ ...options, messageListener: { consume } }).startup();
  say('READY');
}

async function simple() {
  const options = { ...server, consumerGroup: last, subscriptions };
  const consumer = new SimpleConsumer({ ...options, awaitDuration: AWAIT_MS });
  await consumer.startup();
  say('READY');
  for (;;) {
    try {
      for (const message of await consumer.receive(AT_ONCE, INVISIBLE_MS)) {
        say(`GOT ${message.keys[0]} ${message.deliveryAttempt}`);
        try {
          await consumer.ack(message);
          say(`DONE ${message.keys[0]}`);
        } catch (error) {
          say(`UNSURE ${message.keys[0]} ${word(error)}`);
        }
      }
    } catch (error) {
      say(`ERROR ${word(error)}`);
      await sleep(100);
    }
  }
}

({ produce, later, push, simple })[role]();
