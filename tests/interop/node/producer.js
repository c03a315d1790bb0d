// A default producer of ali-ons that sends without a pause, one message after another.
//
//   node producer.js NAMESERVERS TOPIC SECONDS [PAUSE_MS]
//
// Each send is a line of JSON, as `interop/go` prints it. The topic must exist: this client makes none.
'use strict';

const { Message, Producer } = require('ali-ons');
const options = require('./options');

async function main(names, topic, seconds, pauseMs = '0') {
  const producer = new Producer({ ...options(names), producerGroup: 'interop-node' });
  await producer.ready();
  const stop = Date.now() + Number(seconds) * 1000;
  for (let number = 0; Date.now() < stop; number++) {
    const key = `node-${process.pid}-${number}`;
    const message = new Message(topic, 'TagA', key);
    message.keys = [ key ];
    const said = { key, begin: Date.now(), msgId: '' };
    try {
      const answer = await producer.send(message);
      said.result = answer.sendStatus === 'SEND_OK' ? 'SEND_OK' : `status ${answer.sendStatus}`;
      said.msgId = answer.msgId || '';
    } catch (error) {
      said.result = `${error.name}: ${error.message}`;
    }
    said.end = Date.now();
    console.log(JSON.stringify(said));
    await new Promise(resolve => setTimeout(resolve, Number(pauseMs)));
  }
  process.exit(0);
}

main(...process.argv.slice(2)).catch(error => {
  console.error(error);
  process.exit(1);
});
