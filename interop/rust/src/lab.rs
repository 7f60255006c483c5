//! What the checks share: addresses, a producer, and ways to send and receive.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::TransactionChecker;
use rocketmq::{Producer, SimpleConsumer};

/// Long poll of the consumers. It is the deadline of the call too, and the
/// server has to answer before it, so a second more than in other clients.
pub const AWAIT: Duration = Duration::from_secs(6);
/// The shortest invisible duration that a server takes.
pub const INVISIBLE: Duration = Duration::from_secs(10);
const BATCH: i32 = 16;

/// An error is what a check found wrong.
pub type Result<T> = std::result::Result<T, String>;

pub struct Lab {
    pub producing: String,
    pub consuming: String,
    pub run: String,
    pub producer: Producer,
}

/// A consumer of the topic of one check.
pub struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
    run: String,
}

/// What a message holds; it must come back as it was.
#[derive(Clone, Default)]
pub struct Content {
    pub body: Vec<u8>,
    pub tag: Option<String>,
    pub keys: Vec<String>,
    pub properties: HashMap<String, String>,
    /// The message group.
    pub group: Option<String>,
    /// When to deliver it, seconds since 1970.
    pub due: Option<i64>,
    /// It is sent in a transaction.
    pub transaction: bool,
}

pub fn topic(check: &str) -> String {
    format!("it-rust-{check}")
}

fn client_option(endpoint: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoint);
    option.set_enable_tls(false);
    option.set_long_polling_timeout(AWAIT);
    option
}

impl Lab {
    pub async fn start(producing: &str, consuming: &str, run: &str) -> Result<Lab> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![topic("send")]);
        let mut producer = Producer::new(option, client_option(producing)).map_err(text)?;
        producer.start().await.map_err(text)?;
        Ok(Lab {
            producing: producing.to_string(),
            consuming: consuming.to_string(),
            run: run.to_string(),
            producer,
        })
    }

    /// Starts a producer of transactions.
    pub async fn transactional(
        &self,
        endpoint: &str,
        topic: &str,
        checker: Box<TransactionChecker>,
    ) -> Result<Producer> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![topic]);
        let mut producer =
            Producer::new_transaction_producer(option, client_option(endpoint), checker)
                .map_err(text)?;
        producer.start().await.map_err(text)?;
        Ok(producer)
    }

    pub async fn consumer(&self, check: &str, tags: &str) -> Result<Consumer> {
        self.consumer_with(check, FilterExpression::new(FilterType::Tag, tags))
            .await
    }

    pub async fn consumer_with(&self, check: &str, filter: FilterExpression) -> Result<Consumer> {
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(format!("{}-{}", topic(check), self.run));
        option.set_topics(vec![topic(check)]);
        let mut client =
            SimpleConsumer::new(option, client_option(&self.consuming)).map_err(text)?;
        client.start().await.map_err(text)?;
        Ok(Consumer {
            client,
            topic: topic(check),
            filter,
            run: self.run.clone(),
        })
    }

    /// A message of this run: a consumer passes over those of other runs.
    pub fn message(&self, check: &str, i: &str, content: &Content) -> Result<impl Message> {
        let mut content = content.clone();
        self.mark(i, &mut content);
        message(&topic(check), &content)
    }

    fn mark(&self, i: &str, content: &mut Content) {
        let properties = &mut content.properties;
        properties.insert("run".to_string(), self.run.clone());
        properties.insert("i".to_string(), i.to_string());
    }

    /// Sends a message of this run and returns the id that the server answered.
    pub async fn send(
        &self,
        check: &str,
        i: &str,
        mut content: Content,
    ) -> Result<(String, Content)> {
        self.mark(i, &mut content);
        let receipt = self
            .producer
            .send(message(&topic(check), &content)?)
            .await
            .map_err(|e| format!("send: {e}"))?;
        Ok((receipt.message_id().to_string(), content))
    }
}

pub fn message(topic: &str, content: &Content) -> Result<impl Message> {
    let mut builder = MessageBuilder::builder()
        .set_topic(topic)
        .set_body(content.body.clone())
        .set_keys(content.keys.clone())
        .set_properties(content.properties.clone());
    if let Some(tag) = &content.tag {
        builder = builder.set_tag(tag);
    }
    if let Some(group) = &content.group {
        builder = builder.set_message_group(group);
    }
    if let Some(due) = content.due {
        builder = builder.set_delivery_timestamp(due);
    }
    if content.transaction {
        builder = builder.enable_transaction();
    }
    builder.build().map_err(text)
}

impl Consumer {
    /// One receive; messages of other runs are acknowledged and left out.
    pub async fn poll(&self, invisible: Duration) -> Result<Vec<MessageView>> {
        let views = self
            .client
            .receive_with(&self.topic, &self.filter, BATCH, invisible)
            .await
            .map_err(|e| format!("receive: {e}"))?;
        let mut ours = Vec::new();
        for view in views {
            if view.properties().get("run") == Some(&self.run) {
                ours.push(view);
            } else {
                self.ack(&view).await?;
            }
        }
        Ok(ours)
    }

    /// Polls until it has n messages, at most for a time.
    pub async fn take(&self, n: usize, within: Duration) -> Result<Vec<MessageView>> {
        let begin = Instant::now();
        let mut got = Vec::new();
        while got.len() < n {
            expect(begin.elapsed() < within, || {
                format!("{} of {n} messages came in time", got.len())
            })?;
            got.extend(self.poll(INVISIBLE).await?);
        }
        expect(got.len() == n, || {
            format!("{} messages came, want {n}", got.len())
        })?;
        Ok(got)
    }

    pub async fn take_one(&self, within: Duration) -> Result<MessageView> {
        Ok(self.take(1, within).await?.remove(0))
    }

    /// Polls for a time in which nothing must come.
    pub async fn quiet(&self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            if let Some(view) = self.poll(INVISIBLE).await?.first() {
                let i = view.properties().get("i");
                return Err(format!(
                    "message {i:?} came again, attempt {}",
                    view.delivery_attempt()
                ));
            }
        }
        Ok(())
    }

    /// Receives from a topic that the consumer was not made for.
    pub async fn receive_from(
        &self,
        topic: &str,
    ) -> std::result::Result<usize, rocketmq::error::ClientError> {
        Ok(self.client.receive(topic, &self.filter).await?.len())
    }

    pub async fn ack(&self, view: &MessageView) -> Result<()> {
        self.client.ack(view).await.map_err(|e| format!("ack: {e}"))
    }

    pub async fn shutdown(self) -> Result<()> {
        self.client
            .shutdown()
            .await
            .map_err(|e| format!("shutdown: {e}"))
    }
}

pub fn expect(ok: bool, why: impl FnOnce() -> String) -> Result<()> {
    if ok {
        Ok(())
    } else {
        Err(why())
    }
}

pub fn attempt(view: &MessageView, want: i32) -> Result<()> {
    let got = view.delivery_attempt();
    expect(got == want, || {
        format!("delivery attempt {got}, want {want}")
    })
}

pub fn between(what: &str, took: Duration, low: Duration, high: Duration) -> Result<()> {
    expect(low <= took && took <= high, || {
        format!("{what} after {took:?}, want {low:?} to {high:?}")
    })
}

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Bytes that cannot be compressed, always the same for one i.
pub fn body(i: usize, size: usize) -> Vec<u8> {
    let mut x = i as u32 + 0x9e37_79b9;
    let next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x as u8
    };
    std::iter::repeat_with(next).take(size).collect()
}
