//! The official gRPC client in Rust with its defaults, as one process that goes on until killed.
//!
//! Prints what `java_grpc`'s program prints: READY, ACK key, NACK key error, GOT key attempt,
//! DONE key, UNSURE key error, ERROR error. The client has no push consumer.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};

const INVISIBLE: Duration = Duration::from_secs(10);
const AT_ONCE: i32 = 16;

fn say(line: String) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody reads");
}

fn word(error: impl std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join("_")
}

async fn produce(server: ClientOption, topic: &str, pause: Duration) -> Result<(), Box<dyn Error>> {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let mut producer = Producer::new(option, server)?;
    producer.start().await?;
    say("READY".into());
    for number in 0.. {
        let message = MessageBuilder::builder()
            .set_topic(topic)
            .set_keys(vec![format!("key-{number}")])
            .set_body(format!("message {number}").into_bytes())
            .build()?;
        match producer.send(message).await {
            Ok(_) => say(format!("ACK key-{number}")),
            Err(error) => say(format!("NACK key-{number} {}", word(error))),
        }
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

async fn simple(server: ClientOption, topic: &str, group: &str) -> Result<(), Box<dyn Error>> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(group);
    let mut consumer = SimpleConsumer::new(option, server)?;
    consumer.start().await?;
    say("READY".into());
    let all = FilterExpression::new(FilterType::Tag, "*");
    loop {
        match consumer.receive_with(topic, &all, AT_ONCE, INVISIBLE).await {
            Ok(messages) => {
                for message in messages {
                    let key = &message.keys()[0];
                    say(format!("GOT {key} {}", message.delivery_attempt()));
                    match consumer.ack(&message).await {
                        Ok(()) => say(format!("DONE {key}")),
                        Err(error) => say(format!("UNSURE {key} {}", word(error))),
                    }
                }
            }
            Err(error) => {
                say(format!("ERROR {}", word(error)));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, endpoint, topic, last] = &arguments[..] else {
        return Err("role, endpoint, topic, and pause in ms or consumer group".into());
    };
    let mut server = ClientOption::default();
    server.set_access_url(endpoint);
    server.set_enable_tls(false);
    match role.as_str() {
        "produce" => produce(server, topic, Duration::from_millis(last.parse()?)).await,
        "simple" => simple(server, topic, last).await,
        _ => Err("produce or simple".into()),
    }
}
