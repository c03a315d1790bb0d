import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;

/** Send ten messages: java -cp "$(cat classpath)" Producer.java [ENDPOINT [TOPIC]] */
class Producer {
    public static void main(String[] args) throws Exception {
        String endpoint = args.length > 0 ? args[0] : "127.0.0.1:8081";
        String topic = args.length > 1 ? args[1] : "greetings";

        ClientConfiguration server = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        try (var producer = provider.newProducerBuilder().setClientConfiguration(server).setTopics(topic).build()) {
            for (int number = 0; number < 10; number++) {
                byte[] body = ("hello " + number + " from Java").getBytes(StandardCharsets.UTF_8);
                Message message = provider.newMessageBuilder()
                    .setTopic(topic).setKeys("greeting-" + number).setBody(body).build();
                // Throws unless it is stored on enough replicas.
                System.out.println("sent " + producer.send(message).getMessageId());
            }
        }
    }
}
