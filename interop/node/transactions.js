'use strict';

// Checks of transactions, ended by their producer or by a checker that the
// server asks; each a function of the lab.

const { Producer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { attempt, between, expect, topic } = require('./lab');

const BODY = Buffer.from([ 1, 2, 3 ]);
const { COMMIT, ROLLBACK, TRANSACTION_RESOLUTION_UNSPECIFIED: UNKNOWN } = TransactionResolution;

// start makes a producer of a check's topic, whose checker notes what it is asked.
async function start(lab, endpoints, check, answer) {
  const asked = [];
  const producer = new Producer({
    ...lab.options(endpoints),
    topics: [ topic(check) ],
    checker: {
      async check(view) {
        if (view.properties.get('run') !== lab.run) return ROLLBACK;
        asked.push(view);
        return answer;
      },
    },
  });
  await producer.startup();
  return { producer, asked };
}

async function begin(lab, producer, check, i) {
  const transaction = producer.beginTransaction();
  await producer.send(lab.message(check, i, BODY, { tag: 'tag', keys: [ `key-${i}` ] }), transaction);
  return transaction;
}

function same(view, i) {
  const got = view.properties.get('i');
  expect(got === i, `message ${got}, want ${i}`);
  expect(view.body.equals(BODY), `message ${i} has another body`);
  expect(view.tag === 'tag' && view.keys.join() === `key-${i}`, `message ${i}: tag ${view.tag}, keys ${view.keys}`);
}

// arrives takes one message, and wants it to be message i as it was sent.
async function arrives(lab, consumer, i) {
  const [ view ] = await lab.take(consumer, 1);
  same(view, i);
  attempt(view, 1);
  await consumer.ack(view);
}

function once(asked, i) {
  expect(asked.length === 1, `the checker was asked ${asked.length} times, want once`);
  same(asked[0], i);
}

// commit begins two transactions: the message of the first comes after its commit, which is the second.
async function commit(lab) {
  const consumer = await lab.consumer('commit');
  const { producer, asked } = await start(lab, lab.producing, 'commit', UNKNOWN);
  const transaction = await begin(lab, producer, 'commit', 'first');
  await (await begin(lab, producer, 'commit', 'second')).commit();
  await arrives(lab, consumer, 'second');
  await transaction.commit();
  await arrives(lab, consumer, 'first');
  await lab.quiet(consumer, 8_000); // also past the time of a check
  expect(asked.length === 0, 'the checker was asked for an ended transaction');
  await producer.shutdown();
  await consumer.shutdown();
}

async function rollback(lab) {
  const consumer = await lab.consumer('rollback');
  const { producer, asked } = await start(lab, lab.producing, 'rollback', COMMIT);
  await (await begin(lab, producer, 'rollback', 'rolled back')).rollback();
  await (await begin(lab, producer, 'rollback', 'committed')).commit();
  await arrives(lab, consumer, 'committed');
  await lab.quiet(consumer, 8_000); // also past the time of a check
  expect(asked.length === 0, 'the checker was asked for an ended transaction');
  await producer.shutdown();
  await consumer.shutdown();
}

// check leaves a transaction open: the checker that the server asks commits it.
async function check(lab) {
  const consumer = await lab.consumer('check');
  const { producer, asked } = await start(lab, lab.producing, 'check', COMMIT);
  const sent = performance.now();
  await begin(lab, producer, 'check', 'open');
  await arrives(lab, consumer, 'open');
  between('the message came', performance.now() - sent, 4_000, 15_000);
  once(asked, 'open');
  await lab.quiet(consumer, 3_000);
  await producer.shutdown();
  await consumer.shutdown();
}

// restart ends the producer with a transaction open: another one of the topic,
// at the other proxy, is asked.
async function restart(lab) {
  const consumer = await lab.consumer('restart');
  const first = await start(lab, lab.producing, 'restart', ROLLBACK);
  await begin(lab, first.producer, 'restart', 'left');
  await first.producer.shutdown();
  const second = await start(lab, lab.consuming, 'restart', COMMIT);
  await arrives(lab, consumer, 'left');
  expect(first.asked.length === 0, 'the ended producer was asked');
  once(second.asked, 'left');
  await lab.quiet(consumer, 3_000);
  await second.producer.shutdown();
  await consumer.shutdown();
}

module.exports = {
  'transaction-commit': commit,
  'transaction-rollback': rollback,
  'transaction-check': check,
  'transaction-restart': restart,
};
