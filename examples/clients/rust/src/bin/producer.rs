//! Send ten messages: cargo run --bin producer [ENDPOINT [TOPIC]]

use std::error::Error;

use rocketmq::conf::{ClientOption, ProducerOption};
use rocketmq::model::message::MessageBuilder;
use rocketmq::Producer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or("127.0.0.1:8081".into());
    let topic = arguments.next().unwrap_or("greetings".into());

    let mut server = ClientOption::default();
    server.set_access_url(endpoint);
    server.set_enable_tls(false);
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic.clone()]);

    let mut producer = Producer::new(option, server)?;
    producer.start().await?;
    for number in 0..10 {
        let message = MessageBuilder::builder()
            .set_topic(&topic)
            .set_keys(vec![format!("greeting-{number}")])
            .set_body(format!("hello {number} from Rust").into_bytes())
            .build()?;
        let receipt = producer.send(message).await?; // an error unless enough replicas have it
        println!("sent {}", receipt.message_id());
    }
    producer.shutdown().await?;
    Ok(())
}
