// Print what comes until Ctrl-C: node consumer.js [ENDPOINT [TOPIC [CONSUMER_GROUP]]]
const { PushConsumer, ConsumeResult } = require('rocketmq-client-nodejs');

const [endpoints = '127.0.0.1:8081', topic = 'greetings', consumerGroup = 'readers-in-node'] =
  process.argv.slice(2);

const messageListener = {
  async consume(message) {
    console.log('got', message.body.toString());
    return ConsumeResult.SUCCESS; // or FAILURE: it comes again
  },
};

const subscriptions = new Map([[topic, '*']]);
const consumer = new PushConsumer({
  endpoints, namespace: '', consumerGroup, subscriptions, messageListener,
});
consumer.startup();
process.on('SIGINT', () => consumer.shutdown().then(() => process.exit()));
