//! Print what comes until Ctrl-C: cargo run --bin consumer [ENDPOINT [TOPIC [CONSUMER_GROUP]]]

use std::error::Error;

use rocketmq::conf::{ClientOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::SimpleConsumer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or("127.0.0.1:8081".into());
    let topic = arguments.next().unwrap_or("greetings".into());
    let group = arguments.next().unwrap_or("readers-in-rust".into());

    let mut server = ClientOption::default();
    server.set_access_url(endpoint);
    server.set_enable_tls(false);
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic.clone()]);
    option.set_consumer_group(group);

    let mut consumer = SimpleConsumer::new(option, server)?;
    consumer.start().await?;
    let all = FilterExpression::new(FilterType::Tag, "*");
    loop {
        for message in consumer.receive(&topic, &all).await? {
            println!("got {}", String::from_utf8_lossy(message.body()));
            consumer.ack(&message).await?; // without it the message comes again
        }
    }
}
