//! The checks of what a message can be: ordered, delayed, in a transaction,
//! filtered, one of a batch.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageView;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::Producer;

use crate::lab::{
    attempt, between, expect, text, topic, Consumer, Content, Lab, Result, AWAIT, INVISIBLE,
};

const SECOND: Duration = Duration::from_secs(1);

/// When a server asks about a transaction that nobody has ended.
const CHECK_AFTER: Duration = Duration::from_secs(6);

fn small() -> Content {
    Content {
        body: b"x".to_vec(),
        ..Content::default()
    }
}

fn name(view: &MessageView) -> &str {
    view.properties().get("i").map_or("", String::as_str)
}

pub async fn sql_filter(lab: Arc<Lab>) -> Result<()> {
    let filter = FilterExpression::new(
        FilterType::Sql,
        "region = 'eu' AND (price BETWEEN 10 AND 19.5 OR vip IS NOT NULL)",
    );
    let consumer = lab.consumer_with("sql", filter).await?;
    let mut want = HashSet::new();
    for i in 0..40 {
        let mut content = small();
        let mut property = |name: &str, value: &str| {
            content
                .properties
                .insert(name.to_string(), value.to_string())
        };
        property("region", ["eu", "us"][i % 2]);
        property("price", &i.to_string());
        if i % 8 == 0 {
            property("vip", "yes");
        }
        if i % 2 == 0 && ((10..20).contains(&i) || i % 8 == 0) {
            want.insert(i.to_string());
        }
        lab.send("sql", &i.to_string(), content).await?;
    }
    for view in consumer.take(want.len(), 20 * SECOND).await? {
        expect(want.remove(name(&view)), || {
            format!(
                "message {} came, which does not match or came before",
                name(&view)
            )
        })?;
        consumer.ack(&view).await?;
    }
    consumer.quiet(AWAIT - SECOND).await?;
    consumer.shutdown().await
}

/// One message of three message groups is not acknowledged at first, nor what
/// comes after it in its group. Their leases end, since this client can't give back.
pub async fn fifo(lab: Arc<Lab>) -> Result<()> {
    let (n, failing) = (20, "a-3"); // more than one answer holds
    for i in 0..n {
        for group in ["a", "b", "c"] {
            let content = Content {
                group: Some(format!("{}{group}", lab.run)),
                ..small()
            };
            lab.send("fifo", &format!("{group}-{i}"), content).await?;
        }
    }
    let consumer = lab.consumer("fifo", "*").await?;
    let begin = Instant::now();
    let mut next: HashMap<String, usize> = HashMap::new();
    let mut failed = None;
    while next.values().sum::<usize>() < 3 * n {
        expect(begin.elapsed() < 40 * SECOND, || {
            format!("the next messages were {next:?} in the end")
        })?;
        let mut stopped = HashSet::new(); // groups of which one failed in this answer
        for view in consumer.poll(INVISIBLE).await? {
            let (group, i) = name(&view).split_once('-').unwrap_or_default();
            if stopped.contains(group) {
                continue;
            }
            let want = next.get(group).copied().unwrap_or(0);
            expect(i == want.to_string(), || {
                format!("message {group}-{i} came where {want} is the next")
            })?;
            expect(
                view.message_group() == Some(&format!("{}{group}", lab.run)),
                || format!("message group {:?}", view.message_group()),
            )?;
            if name(&view) == failing {
                match failed {
                    None => {
                        attempt(&view, 1)?;
                        failed = Some(Instant::now());
                        stopped.insert(group.to_string());
                        continue;
                    }
                    Some(at) => {
                        attempt(&view, 2)?;
                        between(
                            "the failed message came again",
                            Instant::now() - at,
                            INVISIBLE - SECOND / 2,
                            INVISIBLE + 8 * SECOND,
                        )?;
                        let meanwhile: usize =
                            next.iter().filter(|(g, _)| *g != group).map(|g| g.1).sum();
                        expect(meanwhile == 2 * n, || {
                            format!("{meanwhile} messages of other groups were done before the failed one came again")
                        })?;
                    }
                }
            }
            consumer.ack(&view).await?;
            next.insert(group.to_string(), want + 1);
        }
    }
    consumer.quiet(AWAIT - SECOND).await?;
    consumer.shutdown().await
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

pub async fn delay(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("delay", "*").await?;
    let mut due = Vec::new();
    for i in 0..3 {
        let at = now().as_secs() + 4 + i;
        due.push(Duration::from_secs(at));
        let content = Content {
            due: Some(at as i64),
            ..small()
        };
        lab.send("delay", &i.to_string(), content).await?;
    }
    let begin = Instant::now();
    let mut lates = Vec::new();
    while lates.len() < due.len() {
        expect(begin.elapsed() < 20 * SECOND, || {
            format!("{} of {} messages came in time", lates.len(), due.len())
        })?;
        let views = consumer.poll(INVISIBLE).await?;
        let now = now();
        for view in views {
            let i: usize = name(&view).parse().map_err(text)?;
            let late = now
                .checked_sub(due[i])
                .ok_or_else(|| format!("message {i} came {:?} too early", due[i] - now))?;
            lates.push(late);
            attempt(&view, 1)?;
            consumer.ack(&view).await?;
        }
    }
    lates.sort();
    // the programs compete for the processor
    expect(lates[0] <= SECOND && lates[2] <= 15 * SECOND, || {
        format!(
            "messages came {lates:?} after they were due, want one within 1 s and all within 15 s"
        )
    })?;
    consumer.quiet(AWAIT - SECOND).await?;
    consumer.shutdown().await
}

/// What the server asked about: ids of messages.
type Asked = Arc<Mutex<Vec<String>>>;

/// Starts a producer of a check whose checker always commits, or always rolls back.
async fn transactional(
    lab: &Lab,
    endpoint: &str,
    check: &str,
    commit: bool,
) -> Result<(Producer, Asked)> {
    let asked = Asked::default();
    let (notes, run) = (asked.clone(), lab.run.clone());
    let checker = move |_, view: MessageView| {
        if view.properties().get("run") != Some(&run) {
            return TransactionResolution::ROLLBACK;
        }
        if let Ok(mut notes) = notes.lock() {
            notes.push(view.message_id().to_string());
        }
        match commit {
            true => TransactionResolution::COMMIT,
            false => TransactionResolution::ROLLBACK,
        }
    };
    let producer = lab
        .transactional(endpoint, &topic(check), Box::new(checker))
        .await?;
    Ok((producer, asked))
}

fn asked_about(asked: &Asked, want: Option<&str>) -> Result<()> {
    let asked = asked.lock().map_err(text)?;
    let ok = match want {
        None => asked.is_empty(),
        Some(id) => !asked.is_empty() && asked.iter().all(|other| other == id),
    };
    expect(ok, || {
        format!("the server asked about the messages {asked:?}, want {want:?}")
    })
}

/// Sends a message in a transaction.
async fn half(lab: &Lab, producer: &Producer, check: &str) -> Result<impl Transaction> {
    let content = Content {
        transaction: true,
        ..small()
    };
    let transaction = producer
        .send_transaction_message(lab.message(check, "1", &content)?)
        .await
        .map_err(|e| format!("send: {e}"))?;
    expect(
        !transaction.message_id().is_empty() && !transaction.transaction_id().is_empty(),
        || "no ids in the answer".to_string(),
    )?;
    Ok(transaction)
}

/// Receives and acknowledges the message of a transaction.
async fn committed(consumer: &Consumer, sent: &str, within: Duration) -> Result<()> {
    let view = consumer.take_one(within).await?;
    expect(view.message_id() == sent, || {
        format!("id {}, want {sent}", view.message_id())
    })?;
    attempt(&view, 1)?;
    consumer.ack(&view).await
}

pub async fn transaction_commit(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("commit", "*").await?;
    let (producer, asked) = transactional(&lab, &lab.producing, "commit", false).await?;
    let transaction = half(&lab, &producer, "commit").await?;
    let sent = transaction.message_id().to_string();
    consumer.quiet(2 * SECOND).await?;
    transaction
        .commit()
        .await
        .map_err(|e| format!("commit: {e}"))?;
    committed(&consumer, &sent, 5 * SECOND).await?;
    consumer.quiet(CHECK_AFTER + 2 * SECOND).await?;
    asked_about(&asked, None)?;
    producer.shutdown().await.map_err(text)?;
    consumer.shutdown().await
}

pub async fn transaction_rollback(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("rollback", "*").await?;
    let (producer, asked) = transactional(&lab, &lab.producing, "rollback", true).await?;
    half(&lab, &producer, "rollback")
        .await?
        .rollback()
        .await
        .map_err(|e| format!("rollback: {e}"))?;
    consumer.quiet(CHECK_AFTER + 4 * SECOND).await?;
    asked_about(&asked, None)?;
    producer.shutdown().await.map_err(text)?;
    consumer.shutdown().await
}

pub async fn transaction_check(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("check", "*").await?;
    let (producer, asked) = transactional(&lab, &lab.producing, "check", true).await?;
    let begin = Instant::now();
    let sent = half(&lab, &producer, "check")
        .await?
        .message_id()
        .to_string();
    committed(&consumer, &sent, CHECK_AFTER + 15 * SECOND).await?;
    between(
        "the message came",
        begin.elapsed(),
        CHECK_AFTER,
        CHECK_AFTER + 10 * SECOND,
    )?;
    asked_about(&asked, Some(&sent))?;
    producer.shutdown().await.map_err(text)?;
    consumer.shutdown().await
}

/// The producer is closed before the check: another one of the topic, at the
/// other address, is asked.
pub async fn transaction_restart(lab: Arc<Lab>) -> Result<()> {
    let consumer = lab.consumer("restart", "*").await?;
    let (producer, first) = transactional(&lab, &lab.producing, "restart", false).await?;
    let sent = half(&lab, &producer, "restart")
        .await?
        .message_id()
        .to_string();
    producer.shutdown().await.map_err(text)?;
    let (producer, second) = transactional(&lab, &lab.consuming, "restart", true).await?;
    committed(&consumer, &sent, CHECK_AFTER + 25 * SECOND).await?;
    asked_about(&first, None)?;
    asked_about(&second, Some(&sent))?;
    producer.shutdown().await.map_err(text)?;
    consumer.shutdown().await
}

pub async fn batch(lab: Arc<Lab>) -> Result<()> {
    let n = 20;
    let consumer = lab.consumer("batch", "*").await?;
    let messages = (0..n)
        .map(|i| lab.message("batch", &i.to_string(), &small()))
        .collect::<Result<Vec<_>>>()?;
    let receipts = lab.producer.batch_send(messages).await.map_err(text)?;
    expect(receipts.len() == n, || {
        format!("{n} messages got {} receipts", receipts.len())
    })?;
    for view in consumer.take(n, 20 * SECOND).await? {
        let i: usize = name(&view).parse().map_err(text)?;
        expect(view.message_id() == receipts[i].message_id(), || {
            format!(
                "message {i} has the id {}, want {}",
                view.message_id(),
                receipts[i].message_id()
            )
        })?;
        attempt(&view, 1)?;
        consumer.ack(&view).await?;
    }
    consumer.quiet(AWAIT - SECOND).await?;
    consumer.shutdown().await
}
