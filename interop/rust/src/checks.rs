//! The checks of ../README.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketmq::model::message::MessageView;
use tokio::time::sleep;

use crate::lab::{attempt, between, body, expect, message, Content, Lab, Result, AWAIT, INVISIBLE};

/// This client receives gRPC messages of at most 4 MiB.
const BODY_MAX: usize = (4 << 20) - (100 << 10);

const SECOND: Duration = Duration::from_secs(1);

/// The body size of message i of 100: mostly small, some large, one the largest.
fn size_of(i: usize) -> usize {
    match i {
        11 => 32 << 10,
        22 => (64 << 10) + 1,
        33 => 256 << 10,
        44 => 1 << 20,
        55 => (2 << 20) + 7,
        66 => 3 << 20,
        77 => BODY_MAX - 1,
        88 => BODY_MAX,
        _ => 1 + i * i % 2000,
    }
}

fn hundredth(run: &str, i: usize) -> Content {
    let size = size_of(i);
    Content {
        body: body(i, size),
        tag: Some(format!("tag{}", i % 5)),
        keys: vec![format!("key-{run}-{i}"), format!("größe-{size}")],
        properties: HashMap::from([(
            "text".to_string(),
            format!("naïve, 日本語, = & \"quoted\" {i}"),
        )]),
        ..Content::default()
    }
}

fn small() -> Content {
    Content {
        body: b"x".to_vec(),
        ..Content::default()
    }
}

pub async fn send_hundred(lab: Arc<Lab>) -> Result<()> {
    let n = 100;
    let invisible = 15 * SECOND;
    let consumer = lab.consumer("send", "*").await?;
    let mut want = HashMap::new();
    for i in 0..n {
        let (id, content) = lab
            .send("send", &i.to_string(), hundredth(&lab.run, i))
            .await
            .map_err(|e| format!("message {i} of {} bytes: {e}", size_of(i)))?;
        want.insert(id, content);
    }
    expect(want.len() == n, || {
        format!("{n} messages got {} ids", want.len())
    })?;
    let begin = Instant::now();
    while !want.is_empty() {
        expect(begin.elapsed() < 20 * SECOND, || {
            format!("{} of {n} messages did not come", want.len())
        })?;
        for view in consumer.poll(invisible).await? {
            same(&view, want.remove(view.message_id()))?;
            consumer.ack(&view).await?;
        }
    }
    consumer.quiet(invisible + 2 * SECOND).await?;
    consumer.shutdown().await
}

/// Compares what was received with what was sent.
fn same(got: &MessageView, want: Option<Content>) -> Result<()> {
    let want =
        want.ok_or_else(|| format!("id {} was not sent, or came twice", got.message_id()))?;
    let i = &want.properties["i"];
    expect(got.body() == want.body, || {
        format!(
            "message {i}: another body, {} bytes of {}",
            got.body().len(),
            want.body.len()
        )
    })?;
    expect(got.tag() == want.tag.as_deref(), || {
        format!("message {i}: tag {:?}, want {:?}", got.tag(), want.tag)
    })?;
    expect(got.keys() == want.keys, || {
        format!("message {i}: keys {:?}, want {:?}", got.keys(), want.keys)
    })?;
    expect(got.properties() == &want.properties, || {
        format!(
            "message {i}: properties {:?}, want {:?}",
            got.properties(),
            want.properties
        )
    })?;
    attempt(got, 1)
}

pub async fn tag_filter(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("tags", "a || b").await?;
    for i in 0..40 {
        let tag = [Some("a"), Some("b"), Some("c"), None][i % 4];
        let content = Content {
            tag: tag.map(str::to_string),
            ..small()
        };
        lab.send("tags", &i.to_string(), content).await?;
    }
    for view in consumer.take(20, 20 * SECOND).await? {
        expect(matches!(view.tag(), Some("a" | "b")), || {
            format!("a message of tag {:?} came", view.tag())
        })?;
        consumer.ack(&view).await?;
    }
    consumer.quiet(AWAIT - SECOND).await?;
    consumer.shutdown().await
}

pub async fn no_ack(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("noack", "*").await?;
    let (id, _) = lab.send("noack", "1", small()).await?;
    attempt(&consumer.take_one(20 * SECOND).await?, 1)?;
    let first = Instant::now();
    let again = consumer.take_one(20 * SECOND).await?;
    between(
        "the message came again",
        first.elapsed(),
        INVISIBLE - SECOND / 2,
        INVISIBLE + 3 * SECOND,
    )?;
    expect(again.message_id() == id, || {
        format!("id {}, want {id}", again.message_id())
    })?;
    attempt(&again, 2)?;
    consumer.ack(&again).await?;
    consumer.shutdown().await
}

pub async fn long_poll_wake(lab: Arc<Lab>) -> Result<()> {
    sleep(6 * SECOND).await; // not while the other checks are at their busiest
    let consumer = Arc::new(lab.consumer("wake", "*").await?);
    let mut delays = Vec::new();
    for i in 0..5 {
        let waiting = consumer.clone();
        let arrived = tokio::spawn(async move {
            let view = waiting.take_one(10 * SECOND).await?;
            Result::Ok((view, Instant::now()))
        });
        sleep(SECOND / 2).await; // it waits by now
        lab.send("wake", &i.to_string(), small()).await?;
        let answered = Instant::now();
        let (view, at) = arrived.await.map_err(|e| format!("panic: {e}"))??;
        delays.push(at.saturating_duration_since(answered));
        consumer.ack(&view).await?;
    }
    delays.sort();
    expect(delays[0] < SECOND / 10 && delays[2] < SECOND / 2, || {
        format!("messages came {delays:?} after their send, want one within 100 ms and half within 500 ms")
    })
}

pub async fn empty_poll(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("empty", "*").await?;
    let begin = Instant::now();
    let views = consumer.poll(INVISIBLE).await?;
    expect(views.is_empty(), || {
        format!("{} messages came", views.len())
    })?;
    between(
        "an empty poll ended",
        begin.elapsed(),
        9 * SECOND / 2,
        8 * SECOND,
    )?;
    consumer.shutdown().await
}

pub async fn unknown_topic(lab: Arc<Lab>) -> Result<()> {
    let unknown = format!("it-rust-unknown-{}", lab.run);
    let sent = lab.producer.send(message(&unknown, &small())?).await;
    not_found("sending to", sent.err())?;
    let consumer = lab.consumer("empty", "*").await?;
    not_found(
        "receiving from",
        consumer.receive_from(&unknown).await.err(),
    )?;
    consumer.shutdown().await
}

fn not_found(what: &str, error: Option<rocketmq::error::ClientError>) -> Result<()> {
    let error = error.ok_or_else(|| format!("{what} an unknown topic is no error"))?;
    expect(
        error
            .context()
            .iter()
            .any(|(_, value)| value == "TOPIC_NOT_FOUND"),
        || format!("{what} an unknown topic: {error}, want TOPIC_NOT_FOUND"),
    )
}
