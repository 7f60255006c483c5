'use strict';

// Runs the official Node.js client of Apache RocketMQ 5, unmodified, against a
// server and tells which of the checks of ../README.md it passes.

const { parseArgs } = require('node:util');
const checks = require('./checks');
const { Lab } = require('./lab');

const CHECK_MAX = 55_000; // ms; ends a check that hangs

const { values: args } = parseArgs({
  options: {
    endpoints: { type: 'string', default: '127.0.0.1:8081' }, // to produce at, and after a comma one to consume at
    run: { type: 'string', default: '1' }, // the end of the names of the consumer groups
  },
});

const counts = { passed: 0, failed: 0, skipped: 0 };

// within fails when a promise takes longer than a time.
async function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${ms / 1000} s`)), ms);
  });
  try {
    await Promise.race([ promise, late ]);
  } finally {
    clearTimeout(timer);
  }
}

// one runs a check and reports its end, or that there was none in time.
async function one(name, check) {
  const begin = performance.now();
  try {
    await within(CHECK_MAX, check());
    counts.passed++;
    console.log(`ok   ${name} (${Math.round(performance.now() - begin)} ms)`);
  } catch (e) {
    counts.failed++;
    console.log(`FAIL ${name}: ${e.message}`);
    console.error(e);
  }
}

async function main() {
  const [ producing, consuming = producing ] = args.endpoints.split(',');
  counts.skipped += 2;
  console.log('n/a  batch: the client lacks it: a send has one message');
  console.log('n/a  tls: the client lacks it: it refuses a self-signed certificate');
  const lab = new Lab(producing, consuming, args.run);
  try {
    await within(CHECK_MAX, lab.start());
    await Promise.all(Object.entries(checks).map(([ name, check ]) => one(name, () => check(lab))));
  } catch (e) {
    counts.failed++;
    console.log(`FAIL start: ${e.message}`);
  }
  console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
  process.exit(counts.failed > 0 ? 1 : 0);
}

process.on('unhandledRejection', e => console.error('unhandled rejection', e));
main();
