'use strict';

// The checks of ../README.md, each a function of the lab.

const { ConsumeResult, FilterExpression, NotFoundException, PushConsumer } = require('rocketmq-client-nodejs');
const { FilterType } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { AWAIT, attempt, between, body, expect, sleep, topic } = require('./lab');

const BODY_MAX = Math.floor(3.9 * (1 << 20)); // it receives gRPC messages of at most 4 MiB
const LARGE = new Map([
  [ 11, 32 << 10 ], [ 22, (64 << 10) + 1 ], [ 33, 256 << 10 ], [ 44, 1 << 20 ],
  [ 55, (2 << 20) + 7 ], [ 66, 3 << 20 ], [ 77, BODY_MAX - 1 ], [ 88, BODY_MAX ],
]);

// hundredth makes message i of 100, mostly small: what it holds must come back as it was.
function hundredth(lab, i) {
  const size = LARGE.get(i) ?? 1 + i * i % 2000;
  return lab.message('send', i, body(i, size), {
    tag: `tag${i % 5}`,
    keys: [ `key-${lab.run}-${i}`, `größe-${size}` ],
    properties: [[ 'text', `naïve, 日本語, = & "quoted" ${i}` ]],
  });
}

const sorted = properties => JSON.stringify([ ...properties ].sort());

function same(got, want) {
  expect(want, `id ${got.messageId} was not sent, or came twice`);
  const i = want.properties.get('i');
  expect(got.body.equals(want.body), `message ${i}: another body, ${got.body.length} bytes of ${want.body.length}`);
  expect(got.tag === want.tag, `message ${i}: tag ${got.tag}, want ${want.tag}`);
  expect(got.keys.join() === want.keys.join(), `message ${i}: keys ${got.keys}, want ${want.keys}`);
  expect(sorted(got.properties) === sorted(want.properties),
    `message ${i}: properties ${sorted(got.properties)}, want ${sorted(want.properties)}`);
  expect(!got.corrupted, `message ${i}: the digest is wrong`);
  attempt(got, 1);
}

async function sendHundred(lab) {
  const n = 100;
  const invisible = 15_000;
  const consumer = await lab.consumer('send');
  const want = new Map();
  for (let i = 0; i < n; i++) {
    const message = hundredth(lab, i);
    want.set(await lab.send(message), message);
  }
  expect(want.size === n, `${n} messages got ${want.size} ids`);
  for (const end = performance.now() + 20_000; want.size > 0;) {
    expect(performance.now() < end, `${want.size} of ${n} messages did not come`);
    for (const view of await lab.poll(consumer, invisible)) {
      same(view, want.get(view.messageId));
      want.delete(view.messageId);
      await consumer.ack(view);
    }
  }
  await lab.quiet(consumer, invisible + 2_000);
  await consumer.shutdown();
}

async function tagFilter(lab) {
  const consumer = await lab.consumer('tags', 'a || b');
  for (let i = 0; i < 40; i++) {
    await lab.send(lab.message('tags', i, Buffer.from('x'), { tag: [ 'a', 'b', 'c', undefined ][i % 4] }));
  }
  for (const view of await lab.take(consumer, 20)) {
    expect(view.tag === 'a' || view.tag === 'b', `a message of tag ${view.tag} came`);
    await consumer.ack(view);
  }
  await lab.quiet(consumer, AWAIT);
  await consumer.shutdown();
}

// sqlFilter uses an expression on properties; a property that is missing is NULL.
async function sqlFilter(lab) {
  const consumer = await lab.consumer('sql', new FilterExpression(
    "(price BETWEEN 10 AND 19 AND region IN ('eu', 'us')) OR vip IS NOT NULL", FilterType.SQL));
  const want = [];
  for (let i = 0; i < 40; i++) {
    const properties = [[ 'price', String(i) ]];
    if (i % 4 < 3) properties.push([ 'region', [ 'eu', 'us', 'asia' ][i % 4] ]);
    if (i === 39) properties.push([ 'vip', 'true' ]);
    if ((i >= 10 && i <= 19 && i % 4 < 2) || i === 39) want.push(i);
    await lab.send(lab.message('sql', i, Buffer.from('x'), { properties }));
  }
  const got = [];
  for (const view of await lab.take(consumer, want.length)) {
    got.push(Number(view.properties.get('i')));
    await consumer.ack(view);
  }
  got.sort((a, b) => a - b);
  expect(got.join() === want.join(), `messages ${got} came, want ${want}`);
  await lab.quiet(consumer, AWAIT);
  await consumer.shutdown();
}

async function noAck(lab) {
  const consumer = await lab.consumer('noack');
  const sent = performance.now(); // the lease begins later
  const id = await lab.send(lab.message('noack', 1, Buffer.from('again')));
  attempt((await lab.take(consumer, 1))[0], 1);
  const first = performance.now();
  const [ again ] = await lab.take(consumer, 1);
  between('the message came again', performance.now() - sent, 10_000, 30_000);
  between('the message came again', performance.now() - first, 0, 13_000);
  expect(again.messageId === id, `id ${again.messageId}, want ${id}`);
  attempt(again, 2);
  await consumer.ack(again);
  await consumer.shutdown();
}

// changeInvisible prolongs three leases. One message is acknowledged with the
// handle from before, one with that from after, and one not at all: it proves
// that the change had an effect.
async function changeInvisible(lab) {
  const longer = 15_000;
  const consumer = await lab.consumer('change');
  for (const name of [ 'old', 'new', 'none' ]) {
    await lab.send(lab.message('change', name, Buffer.from('x')));
  }
  let changed;
  for (const view of await lab.take(consumer, 3, 10_000)) {
    const before = view.receiptHandle;
    const asked = performance.now();
    await consumer.changeInvisibleDuration(view, longer);
    expect(view.receiptHandle, 'no receipt handle in the answer');
    const name = view.properties.get('i');
    if (name === 'none') {
      changed = asked;
      continue;
    }
    if (name === 'old') view.receiptHandle = before;
    await consumer.ack(view);
  }
  const [ again ] = await lab.take(consumer, 1, longer + 4_000);
  const name = again.properties.get('i');
  expect(name === 'none', `the message acknowledged with the ${name} handle came again`);
  between('the message came again', performance.now() - changed, longer, longer + 3_000);
  attempt(again, 2);
  await consumer.ack(again);
  await lab.quiet(consumer, 3_000);
  await consumer.shutdown();
}

async function pushConsume(lab) {
  const n = 50;
  const failing = '7';
  const attempts = new Map();
  const times = []; // of the failing message
  let done = 0;
  const consumer = new PushConsumer({
    ...lab.options(lab.consuming),
    consumerGroup: lab.group('push'),
    subscriptions: new Map([[ topic('push'), '*' ]]),
    messageListener: {
      async consume(view) {
        if (view.properties.get('run') !== lab.run) return ConsumeResult.SUCCESS;
        const i = view.properties.get('i');
        attempts.set(i, [ ...attempts.get(i) ?? [], view.deliveryAttempt ]);
        if (i === failing && times.push(performance.now()) === 1) return ConsumeResult.FAILURE;
        done++;
        return ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  for (let i = 0; i < n; i++) await lab.send(lab.message('push', i, Buffer.from('x')));
  for (const end = performance.now() + 20_000; done < n; await sleep(50)) {
    expect(performance.now() < end, `${done} of ${n} messages were consumed in time`);
  }
  await sleep(2_000); // none comes once more
  await consumer.shutdown(); // waits for the pending poll, up to 23 s

  expect(attempts.size === n, `${attempts.size} different messages, want ${n}`);
  for (const [ i, got ] of attempts) {
    const want = i === failing ? '1,2' : '1';
    expect(got.join() === want, `message ${i} came with attempts ${got}, want ${want}`);
  }
  // This client does not understand a customized back-off: it asks for 0 s.
  between('the failed message came again', times[1] - times[0], 0, 6_000);
}

async function longPollWake(lab) {
  await sleep(6_000); // not while the other checks are at their busiest
  const consumer = await lab.consumer('wake');
  const delays = [];
  for (let i = 0; i < 5; i++) {
    const arrived = lab.take(consumer, 1, 10_000).then(([ view ]) => ({ view, at: performance.now() }));
    arrived.catch(() => {}); // it is awaited below
    await sleep(500); // it waits by now
    await lab.send(lab.message('wake', i, Buffer.from('x')));
    const answered = performance.now();
    const { view, at } = await arrived;
    delays.push(Math.max(0, at - answered));
    await consumer.ack(view);
  }
  delays.sort((a, b) => a - b);
  expect(delays[0] < 100 && delays[2] < 500,
    `messages came ${delays.map(Math.round)} ms after their send, want one within 100 and half within 500`);
  await consumer.shutdown();
}

async function emptyPoll(lab) {
  const consumer = await lab.consumer('empty');
  const begin = performance.now();
  const views = await lab.poll(consumer);
  expect(views.length === 0, `${views.length} messages came`);
  between('an empty poll ended', performance.now() - begin, 4_500, 8_000);
  await consumer.shutdown();
}

async function unknownTopic(lab) {
  const unknown = `it-node-unknown-${lab.run}`;
  await notFound('sending to', lab.producer.send({ topic: unknown, body: Buffer.from('x') }));
  const consumer = await lab.consumer('empty');
  await notFound('subscribing to', consumer.subscribe(unknown, FilterExpression.SUB_ALL));
  await consumer.shutdown();
}

async function notFound(what, call) {
  let error;
  await call.catch(e => {
    error = e;
  });
  expect(error, `${what} an unknown topic is no error`);
  expect(error instanceof NotFoundException, `${what} an unknown topic: ${error}, want NotFoundException`);
}

module.exports = {
  'send-100': sendHundred,
  'tag-filter': tagFilter,
  'no-ack': noAck,
  'change-invisible': changeInvisible,
  'push-consume': pushConsume,
  'long-poll-wake': longPollWake,
  'empty-poll': emptyPoll,
  'unknown-topic': unknownTopic,
  'sql-filter': sqlFilter,
  ...require('./order'),
  ...require('./timing'),
  ...require('./transactions'),
  ...require('./deadletters'),
};
