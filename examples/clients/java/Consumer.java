import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;

/** Print what comes until Ctrl-C: java -cp "$(cat classpath)" Consumer.java [ENDPOINT [TOPIC [CONSUMER_GROUP]]] */
class Consumer {
    public static void main(String[] args) throws Exception {
        String endpoint = args.length > 0 ? args[0] : "127.0.0.1:8081";
        String topic = args.length > 1 ? args[1] : "greetings";
        String group = args.length > 2 ? args[2] : "readers-in-java";

        ClientConfiguration server = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
        ClientServiceProvider.loadService().newPushConsumerBuilder()
            .setClientConfiguration(server)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                System.out.println("got " + StandardCharsets.UTF_8.decode(message.getBody()));
                return ConsumeResult.SUCCESS; // or FAILURE: it comes again
            })
            .build();
        Thread.currentThread().join();
    }
}
