'use strict';

// The check of a message that always fails: it ends in the dead letters of its group.

const { ConsumeResult, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { AWAIT, expect, sleep, topic } = require('./lab');

const BODY = Buffer.from([ 4, 5, 6 ]);

async function deadLetter(lab) {
  const attempts = [];
  const pushing = new PushConsumer({
    ...lab.options(lab.consuming),
    consumerGroup: lab.group('dead'),
    subscriptions: new Map([[ topic('dead'), '*' ]]),
    messageListener: {
      async consume(view) {
        if (view.properties.get('run') !== lab.run) return ConsumeResult.SUCCESS;
        attempts.push(view.deliveryAttempt);
        return ConsumeResult.FAILURE;
      },
    },
  });
  await pushing.startup();
  const id = await lab.send(lab.message('dead', 1, BODY, { tag: 'tag', keys: [ 'key' ], properties: [[ 'order', '7' ]] }));
  for (const end = performance.now() + 20_000; attempts.length < 2; await sleep(50)) {
    expect(performance.now() < end, `attempts ${attempts} came in time, want 1,2`);
  }
  await sleep(3_000); // no third attempt
  const closed = pushing.shutdown(); // waits for the pending poll, up to 23 s

  const dead = `%DLQ%${lab.group('dead')}`;
  const consumer = new SimpleConsumer({
    ...lab.options(lab.consuming),
    consumerGroup: lab.group('deadread'),
    subscriptions: new Map([[ dead, '*' ]]),
    awaitDuration: AWAIT,
  });
  await consumer.startup();
  const [ view ] = await lab.take(consumer, 1, 15_000);
  expect(view.messageId === id, `dead letter ${view.messageId}, want ${id}`);
  expect(view.topic === dead, `topic ${view.topic}, want ${dead}`);
  expect(view.body.equals(BODY), 'the dead letter has another body');
  expect(view.tag === 'tag' && view.keys.join() === 'key', `tag ${view.tag}, keys ${view.keys}`);
  expect(view.properties.get('order') === '7', `properties ${[ ...view.properties ]}`);
  await consumer.ack(view);
  await lab.quiet(consumer, 1_000);
  await consumer.shutdown();
  await closed;
  expect(attempts.join() === '1,2', `attempts ${attempts}, want 1,2`);
}

module.exports = { 'dead-letter': deadLetter };
