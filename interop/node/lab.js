'use strict';

// What the checks share: addresses, a producer, and ways to send and receive.

const { format } = require('node:util');
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const AWAIT = 5_000; // ms: long poll of the simple consumers
const INVISIBLE = 10_000; // ms: the shortest a server takes
const BATCH = 16;

// The client's own log goes to standard error, not to a file in the home directory.
const log = level => (...args) => console.error(level, new Date().toISOString(), format(...args));
const logger = { debug: () => {}, info: log('INFO'), warn: log('WARN'), error: log('ERROR') };

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

function expect(ok, text) {
  if (!ok) throw new Error(text);
}

function attempt(view, want) {
  expect(view.deliveryAttempt === want, `delivery attempt ${view.deliveryAttempt}, want ${want}`);
}

function between(what, took, low, high) {
  expect(took >= low && took <= high, `${what} after ${Math.round(took)} ms, want ${low} to ${high} ms`);
}

const topic = check => `it-node-${check}`;

// body makes bytes that cannot be compressed, always the same for one i.
function body(i, size) {
  const bytes = Buffer.allocUnsafe(size);
  let x = i + 0x9e3779b9;
  for (let j = 0; j < size; j++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    bytes[j] = x;
  }
  return bytes;
}

class Lab {
  constructor(producing, consuming, run) {
    this.producing = producing;
    this.consuming = consuming;
    this.run = run;
  }

  options(endpoints) {
    return { endpoints, namespace: '', logger };
  }

  group(check) {
    return `${topic(check)}-${this.run}`;
  }

  async start() {
    this.producer = new Producer({ ...this.options(this.producing), topics: [ topic('send') ] });
    await this.producer.startup();
  }

  async consumer(check, filter = '*') {
    const consumer = new SimpleConsumer({
      ...this.options(this.consuming),
      consumerGroup: this.group(check),
      subscriptions: new Map([[ topic(check), filter ]]),
      awaitDuration: AWAIT,
    });
    await consumer.startup();
    return consumer;
  }

  // message makes one of this run: a consumer passes over those of other runs.
  message(check, i, content, more = {}) {
    const properties = new Map([[ 'run', this.run ], [ 'i', String(i) ], ...(more.properties ?? []) ]);
    return { topic: topic(check), body: content, ...more, properties };
  }

  // send returns the id that the server answered.
  async send(message) {
    return (await this.producer.send(message)).messageId;
  }

  // poll is one receive; messages of other runs are acknowledged and left out.
  async poll(consumer, invisible = INVISIBLE, batch = BATCH) {
    const ours = [];
    for (const view of await consumer.receive(batch, invisible)) {
      if (view.properties.get('run') === this.run) ours.push(view);
      else await consumer.ack(view);
    }
    return ours;
  }

  // take polls until it has n messages, at most for a time.
  async take(consumer, n, within = 20_000) {
    const end = performance.now() + within;
    const got = [];
    while (got.length < n) {
      expect(performance.now() < end, `${got.length} of ${n} messages came in time`);
      got.push(...await this.poll(consumer));
    }
    expect(got.length === n, `${got.length} messages came, want ${n}`);
    return got;
  }

  // quiet polls for a time in which nothing must come.
  async quiet(consumer, time) {
    for (const end = performance.now() + time; performance.now() < end;) {
      for (const view of await this.poll(consumer)) {
        throw new Error(`message ${view.properties.get('i')} came again, attempt ${view.deliveryAttempt}`);
      }
    }
  }
}

module.exports = { AWAIT, BATCH, INVISIBLE, Lab, attempt, between, body, expect, sleep, topic };
