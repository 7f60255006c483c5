'use strict';

// Checks of messages with a delivery time, each a function of the lab.

const { attempt, expect, sleep, topic } = require('./lab');

function send(lab, check, i, due) {
  return lab.producer.send(lab.message(check, i, Buffer.from('x'), { deliveryTimestamp: new Date(due) }));
}

async function delay(lab) {
  await sleep(6_000); // not while the other checks are at their busiest
  const n = 5;
  const consumer = await lab.consumer('delay');
  for (let i = 0; i < n; i++) {
    const due = Date.now() + 3_000 + 200 * i;
    await send(lab, 'delay', due, due);
  }
  const late = [];
  const came = [];
  for (const end = performance.now() + 15_000; came.length < n;) {
    expect(performance.now() < end, `${came.length} of ${n} messages came in time`);
    const views = await lab.poll(consumer);
    const now = Date.now();
    for (const view of views) {
      const due = Number(view.properties.get('i'));
      attempt(view, 1);
      expect(view.deliveryTimestamp?.getTime() === due, `delivery time ${view.deliveryTimestamp?.getTime()}, want ${due}`);
      expect(now >= due, `a message came ${due - now} ms before its time`);
      late.push(now - due);
      came.push(view);
    }
  }
  for (const view of came) await consumer.ack(view);
  late.sort((a, b) => a - b);
  expect(late[Math.floor(n / 2)] <= 1_000, `messages came ${late} ms late, want half within 1000`);
  await consumer.shutdown();
}

async function recall(lab) {
  const consumer = await lab.consumer('recall');
  const recalled = await send(lab, 'recall', 'recalled', Date.now() + 6_000);
  const early = await send(lab, 'recall', 'early', Date.now() + 2_500);
  await send(lab, 'recall', 'late', Date.now() + 7_000);
  const { messageId } = await lab.producer.recallMessage(topic('recall'), recalled.recallHandle);
  expect(messageId === recalled.messageId, `recalled id ${messageId}, want ${recalled.messageId}`);
  for (const want of [ 'early', 'late' ]) {
    const [ view ] = await lab.take(consumer, 1, 15_000);
    const got = view.properties.get('i');
    expect(got === want, `the message ${got} came, want ${want}`);
    await consumer.ack(view);
  }
  const error = await lab.producer.recallMessage(topic('recall'), early.recallHandle).then(() => undefined, e => e);
  expect(error, 'to recall a message that was delivered is no error');
  await lab.quiet(consumer, 3_000);
  await consumer.shutdown();
}

module.exports = { delay, recall };
