// A push consumer of ali-ons: prints the body of each message on a line.
//
//   node consumer.js NAMESERVERS TOPIC GROUP
//
// It ends when its standard input does.
'use strict';

const { Consumer } = require('ali-ons');
const options = require('./options');

async function main(names, topic, group) {
  const consumer = new Consumer({
    ...options(names),
    consumerGroup: group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.subscribe(topic, '*', async message => console.log(message.body.toString()));
  await consumer.ready();
  process.stdin.resume().on('end', () => process.exit(0));
}

main(...process.argv.slice(2)).catch(error => {
  console.error(error);
  process.exit(1);
});
