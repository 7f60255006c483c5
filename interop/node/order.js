'use strict';

// Checks of what comes before what, each a function of the lab.

const { ConsumeResult, LitePushConsumerBuilder, PushConsumer } = require('rocketmq-client-nodejs');
const { BATCH, INVISIBLE, expect, sleep, topic } = require('./lab');

const BODY = Buffer.from('x');
const FIFO = 10; // messages of a message group
const FAILING = 'b3';
const PRIORITY = 24; // messages of a priority
const PRIORITIES = [ 1, 4, 6 ]; // 0 is sent as a normal message

// Seen is what a listener was given, by message group or lite topic.
class Seen {
  constructor() {
    this.names = new Map();
    this.all = [];
  }

  add(key, name) {
    this.names.set(key, [ ...this.of(key), name ]);
    this.all.push(name);
  }

  of(key) {
    return this.names.get(key) ?? [];
  }

  async wait(n, within) {
    for (const end = performance.now() + within; this.all.length < n; await sleep(50)) {
      expect(performance.now() < end, `${this.all.length} of ${n} deliveries came in time: ${this.all}`);
    }
  }
}

// named is the name of a message, with its attempt after the first.
function named(view) {
  const i = view.properties.get('i');
  return view.deliveryAttempt > 1 ? `${i}/${view.deliveryAttempt}` : i;
}

// numbered makes the names prefix1, prefix2, ...
function numbered(prefix, last) {
  return Array.from({ length: last }, (_, i) => `${prefix}${i + 1}`);
}

// fifo has three message groups, and a message of one of them fails twice.
async function fifo(lab) {
  const groups = [ 'a', 'b', 'c' ];
  for (let i = 1; i <= FIFO; i++) {
    for (const group of groups) {
      await lab.send(lab.message('fifo', group + i, BODY, { messageGroup: `${group}-${lab.run}` }));
    }
  }
  const seen = new Seen();
  const consumer = new PushConsumer({
    ...lab.options(lab.consuming),
    consumerGroup: lab.group('fifo'),
    subscriptions: new Map([[ topic('fifo'), '*' ]]),
    enableFifoConsumeAccelerator: true, // message groups side by side
    messageListener: {
      async consume(view) {
        if (view.properties.get('run') !== lab.run) return ConsumeResult.SUCCESS;
        const i = view.properties.get('i');
        const attempt = view.deliveryAttempt; // the client counts it up itself
        seen.add(view.messageGroup, named(view));
        if (i !== FAILING || attempt >= 3) return ConsumeResult.SUCCESS;
        await sleep(1_500); // it repeats at once what failed
        return ConsumeResult.FAILURE;
      },
    },
  });
  await consumer.startup();
  await seen.wait(groups.length * FIFO + 2, 30_000);
  await sleep(3_000); // none comes once more
  await consumer.shutdown(); // waits for the pending poll, up to 23 s

  for (const group of groups) {
    const want = numbered(group, FIFO);
    const at = want.indexOf(FAILING);
    if (at >= 0) want.splice(at + 1, 0, `${FAILING}/2`, `${FAILING}/3`);
    const got = seen.of(`${group}-${lab.run}`);
    expect(got.join() === want.join(), `message group ${group}: ${got} came, want ${want}`);
  }
  const repeated = seen.all.indexOf(`${FAILING}/3`);
  for (const last of [ `a${FIFO}`, `c${FIFO}` ]) {
    expect(seen.all.indexOf(last) < repeated, `${last} waited for the message that failed`);
  }
}

// priority sends the low ones first: receives get the high ones first. Of a group's receives from a broker
// each eighth begins with the oldest message, so no more than seven are looked at.
async function priority(lab) {
  for (const priority of PRIORITIES) {
    for (let i = 0; i < PRIORITY; i++) await lab.send(lab.message('priority', i, BODY, { priority }));
  }
  const consumer = await lab.consumer('priority');
  const highest = PRIORITIES.at(-1);
  const got = new Map(PRIORITIES.map(p => [ p, 0 ]));
  let left = PRIORITIES.length * PRIORITY;
  const end = performance.now() + 20_000;
  for (let receives = 1; left > 0; receives++) {
    expect(performance.now() < end, `${left} messages did not come`);
    let before = highest;
    for (const view of await lab.poll(consumer, INVISIBLE, receives === 1 ? 2 : BATCH)) {
      const p = view.priority;
      expect(got.has(p), `a message came with priority ${p}`);
      expect(receives > 7 || p <= before, `priority ${p} came after ${before} in one receive`);
      expect(receives > 1 || p === highest, `priority ${p} came in the first receive`);
      before = p;
      got.set(p, got.get(p) + 1);
      left--;
      await consumer.ack(view);
    }
  }
  for (const [ p, n ] of got) expect(n === PRIORITY, `${n} messages of priority ${p}, want ${PRIORITY}`);
  await consumer.shutdown();
}

// lite subscribes to two of three lite topics, and then for a while to one.
async function lite(lab) {
  const [ a, b, c ] = [ 'a', 'b', 'c' ].map(name => `${name}-${lab.run}-`);
  const send = async (first, last) => {
    for (let i = first; i <= last; i++) {
      for (const liteTopic of [ a, b, c ]) await lab.send(lab.message('lite', liteTopic + i, BODY, { liteTopic }));
    }
  };
  const seen = new Seen();
  const { endpoints, namespace, logger } = lab.options(lab.consuming);
  const builder = new LitePushConsumerBuilder()
    .setClientConfiguration({ endpoints, namespace, logger })
    .setConsumerGroup(lab.group('lite'))
    .bindTopic(topic('lite'))
    .setMessageListener({
      async consume(view) {
        seen.add(view.liteTopic, named(view));
        return ConsumeResult.SUCCESS;
      },
    });
  const consumer = await builder.build();
  await consumer.subscribeLite(a);
  await consumer.subscribeLite(b);
  await send(1, 5);
  await seen.wait(10, 15_000);
  await consumer.unsubscribeLite(b);
  await send(6, 10);
  await seen.wait(15, 15_000);
  await sleep(2_000); // no other comes
  expect(seen.of(b).join() === numbered(b, 5).join(), `${b}: ${seen.of(b)} came, want 1 to 5`);
  await consumer.subscribeLite(b);
  await seen.wait(20, 15_000);
  await sleep(1_000);
  for (const name of [ a, b ]) {
    expect(seen.of(name).join() === numbered(name, 10).join(), `${name}: ${seen.of(name)} came, want 1 to 10`);
  }
  expect(seen.of(c).length === 0, `${seen.of(c)} came without a subscription`);
  await consumer.close();
}

module.exports = { fifo, lite, priority };
