//! Runs the official Rust client of Apache RocketMQ 5, unmodified, against a
//! server and tells which of the checks of ../README.md it passes.

mod checks;
mod lab;
mod model;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::{Lab, Result};

/// Ends a check that hangs.
const CHECK_MAX: Duration = Duration::from_secs(55);

/// What the client itself lacks.
const LACKING: [(&str, &str); 7] = [
    ("change-invisible", "the client does not change leases"),
    ("push-consume", "the client has no push consumer"),
    ("dead-letter", "the client has no push consumer"),
    ("tls", "the client has no TLS built in"),
    ("recall", "the client cannot recall"),
    ("priority", "the client sets no priority"),
    ("lite", "the client has no lite consumer"),
];

#[tokio::main]
async fn main() {
    let mut endpoints = "127.0.0.1:8081".to_string();
    let mut run = "1".to_string();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--endpoints", Some(value)) => endpoints = value,
            ("--run", Some(value)) => run = value,
            _ => {
                eprintln!("usage: --endpoints HOST:PORT[,HOST:PORT] --run ID");
                std::process::exit(2);
            }
        }
    }
    let (producing, consuming) = endpoints
        .split_once(',')
        .unwrap_or((&endpoints, &endpoints));

    for (lacking, why) in LACKING {
        println!("n/a  {lacking}: {why}");
    }
    let (mut passed, mut failed) = (0, 0);
    match Lab::start(producing, consuming, &run).await {
        Err(why) => {
            println!("FAIL start: {why}");
            failed += 1;
        }
        Ok(lab) => {
            let lab = Arc::new(lab);
            let running = [
                one("send-100", checks::send_hundred(lab.clone())),
                one("tag-filter", checks::tag_filter(lab.clone())),
                one("no-ack", checks::no_ack(lab.clone())),
                one("long-poll-wake", checks::long_poll_wake(lab.clone())),
                one("empty-poll", checks::empty_poll(lab.clone())),
                one("unknown-topic", checks::unknown_topic(lab.clone())),
                one("sql-filter", model::sql_filter(lab.clone())),
                one("fifo", model::fifo(lab.clone())),
                one("delay", model::delay(lab.clone())),
                one("transaction-commit", model::transaction_commit(lab.clone())),
                one(
                    "transaction-rollback",
                    model::transaction_rollback(lab.clone()),
                ),
                one("transaction-check", model::transaction_check(lab.clone())),
                one(
                    "transaction-restart",
                    model::transaction_restart(lab.clone()),
                ),
                one("batch", model::batch(lab)),
            ];
            for check in running {
                match check.await {
                    Ok(true) => passed += 1,
                    _ => failed += 1,
                }
            }
        }
    }
    println!(
        "{passed} passed, {failed} failed, {} skipped",
        LACKING.len()
    );
    std::process::exit(i32::from(failed > 0));
}

/// Runs one check beside others and reports its end, or that there was none in time.
fn one(
    name: &'static str,
    check: impl Future<Output = Result<()>> + Send + 'static,
) -> tokio::task::JoinHandle<bool> {
    tokio::spawn(async move {
        let begin = Instant::now();
        // A task of its own: this client panics on answers that it does not expect.
        let why = match tokio::time::timeout(CHECK_MAX, tokio::spawn(check)).await {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(why))) => Some(why),
            Ok(Err(panic)) => Some(format!("panic: {panic}")),
            Err(_) => Some(format!("no end after {CHECK_MAX:?}")),
        };
        match &why {
            None => println!("ok   {name} ({} ms)", begin.elapsed().as_millis()),
            Some(why) => println!("FAIL {name}: {why}"),
        }
        why.is_none()
    })
}
