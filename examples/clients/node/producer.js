// Send ten messages: node producer.js [ENDPOINT [TOPIC]]
const { Producer } = require('rocketmq-client-nodejs');

const [endpoints = '127.0.0.1:8081', topic = 'greetings'] = process.argv.slice(2);

async function main() {
  const producer = new Producer({ endpoints, namespace: '', topics: [topic] });
  await producer.startup();
  for (let number = 0; number < 10; number++) {
    const body = Buffer.from(`hello ${number} from Node`);
    // Throws unless it is stored on enough replicas.
    const receipt = await producer.send({ topic, keys: [`greeting-${number}`], body });
    console.log('sent', receipt.messageId);
  }
  await producer.shutdown();
}

main();
