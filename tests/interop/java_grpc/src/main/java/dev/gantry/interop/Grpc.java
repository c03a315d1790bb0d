package dev.gantry.interop;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The official gRPC client with its defaults, as one process that goes on until it is killed; without TLS, which is
 * one of them, unless {@code -Dgantry.tls=true}. Prints a line per event:
 * {@code READY}, {@code ACK key}, {@code NACK key error}, {@code GOT key attempt}, {@code DONE key} for a message that
 * the server has acknowledged to be consumed, {@code UNSURE key error} where that answer is missing,
 * {@code FAILED key} for one that is to come again, {@code LEFT key} for one that is not acknowledged and therefore
 * does, {@code ERROR error};
 * {@code LATER key moment} for one that is sent for a moment of the next seconds, {@code BACK key} if it was taken back.
 * {@code RANK key attempt priority} for one that is taken by itself, of which the first is left at its first attempt.
 * It signs as {@code CLIENT_ACCESS_KEY}, with {@code CLIENT_SECRET_KEY}, where these are in its environment.
 * Where a connection breaks, the client throws gRPC's own unchecked exceptions beside those it declares.
 */
public final class Grpc {
    private static final Duration INVISIBLE = Duration.ofSeconds(10);
    private static final int AT_ONCE = 16;

    private Grpc() {
    }

    public static void main(String[] args) throws Exception {
        String topic = args[2];
        ClientConfigurationBuilder wish = ClientConfiguration.newBuilder().setEndpoints(args[1]);
        String user = System.getenv("CLIENT_ACCESS_KEY");
        if (user != null) {
            String secret = System.getenv("CLIENT_SECRET_KEY");
            wish.setCredentialProvider(new StaticSessionCredentialsProvider(user, secret));
        }
        ClientConfiguration server = Boolean.getBoolean("gantry.tls") ? wish.build() : wish.enableSsl(false).build();
        switch (args[0]) {
            case "produce":
                produce(server, topic, Integer.parseInt(args[3]));
                break;
            case "later":
                later(server, topic, Integer.parseInt(args[3]));
                break;
            case "urgent":
                urgent(server, topic, Integer.parseInt(args[3]), Integer.parseInt(args[4]));
                break;
            case "rank":
                rank(server, topic, args[3]);
                break;
            case "push":
                push(server, topic, args[3]);
                break;
            case "lite-produce":
                liteProduce(server, topic, Integer.parseInt(args[3]), Integer.parseInt(args[4]));
                break;
            case "lite":
                lite(server, topic, args[3], args[4].split(","));
                break;
            case "simple":
                simple(server, topic, args[3], false);
                break;
            case "careless":
                simple(server, topic, args[3], true);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    /** Sends one message after another; one that was refused is not sent again. */
    private static void produce(ClientConfiguration server, String topic, int pauseMillis) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(server).setTopics(topic).build();
        say("READY");
        for (int number = 0;; number++) {
            String key = "key-" + number;
            byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
            Message message = provider.newMessageBuilder().setTopic(topic).setKeys(key).setBody(body).build();
            try {
                producer.send(message);
                say("ACK " + key);
            } catch (ClientException | RuntimeException error) {
                say("NACK " + key + " " + word(error));
            }
            Thread.sleep(pauseMillis);
        }
    }

    /** Sends to one lite topic after the other; the key names the lite topic, and the message's number there. */
    private static void liteProduce(ClientConfiguration server, String topic, int lites, int pauseMillis)
        throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(server).setTopics(topic).build();
        say("READY");
        for (int number = 0;; number++) {
            String lite = "lite-" + number % lites;
            String key = lite + "/" + number / lites;
            byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
            Message message = provider.newMessageBuilder()
                .setTopic(topic).setLiteTopic(lite).setKeys(key).setBody(body).build();
            try {
                producer.send(message);
                say("ACK " + key);
            } catch (ClientException | RuntimeException error) {
                say("NACK " + key + " " + word(error));
            }
            Thread.sleep(pauseMillis);
        }
    }

    /** Consumes lite topics; each message whose number ends with 7 fails at its first attempt. */
    private static void lite(ClientConfiguration server, String topic, String group, String[] lites)
        throws Exception {
        LitePushConsumer consumer = ClientServiceProvider.loadService().newLitePushConsumerBuilder()
            .setClientConfiguration(server)
            .setConsumerGroup(group)
            .bindTopic(topic)
            .setMessageListener(message -> {
                String key = key(message);
                boolean isSame = key.startsWith(message.getLiteTopic().orElse("none") + "/");
                say("GOT " + key + " " + message.getDeliveryAttempt());
                boolean fails = message.getDeliveryAttempt() == 1 && key.endsWith("7");
                say((!isSame ? "STRANGE " : fails ? "FAILED " : "DONE ") + key);
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        for (String lite : lites) {
            consumer.subscribeLite(lite);
        }
        say("READY");
        while (true) {
            Thread.sleep(200);
            say("HAS " + String.join(",", new java.util.TreeSet<>(consumer.getLiteTopicSet())));
        }
    }

    /** Sends messages for moments of the next seconds, and takes every third one back. */
    private static void later(ClientConfiguration server, String topic, int pauseMillis) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(server).setTopics(topic).build();
        say("READY");
        for (int number = 0;; number++) {
            String key = "key-" + number;
            long dueMillis = System.currentTimeMillis() + 3000 + 700 * (number % 5);
            byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
            Message message = provider.newMessageBuilder()
                .setTopic(topic).setKeys(key).setBody(body).setDeliveryTimestamp(dueMillis).build();
            try {
                String handle = producer.send(message).getRecallHandle();
                say("LATER " + key + " " + dueMillis);
                if (number % 3 == 0) {
                    producer.recallMessage(topic, handle);
                    say("BACK " + key);
                }
            } catch (ClientException | RuntimeException error) {
                say("NACK " + key + " " + word(error));
            }
            Thread.sleep(pauseMillis);
        }
    }

    /** Sends so many messages of each priority, the least urgent ones first; then it is done. */
    private static void urgent(ClientConfiguration server, String topic, int priorities, int each) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(server).setTopics(topic).build();
        say("READY");
        for (int number = 0; number < priorities * each; number++) {
            int priority = number % priorities;
            String key = "key-" + priority + "-" + number / priorities;
            byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
            Message message = provider.newMessageBuilder()
                .setTopic(topic).setKeys(key).setBody(body).setPriority(priority).build();
            try {
                producer.send(message);
                say("ACK " + key);
            } catch (ClientException | RuntimeException error) {
                say("NACK " + key + " " + word(error));
                number--;
                Thread.sleep(100);
            }
        }
        say("SENT");
        Thread.currentThread().join();
    }

    /** Takes one message after the other; the first one is left until it comes again. */
    private static void rank(ClientConfiguration server, String topic, String group) throws Exception {
        SimpleConsumer consumer = ClientServiceProvider.loadService().newSimpleConsumerBuilder()
            .setClientConfiguration(server)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .build();
        say("READY");
        boolean isFirst = true;
        while (true) {
            try {
                for (MessageView message : consumer.receive(1, INVISIBLE)) {
                    say("RANK " + key(message) + " " + message.getDeliveryAttempt() + " "
                        + message.getPriority().map(String::valueOf).orElse("none"));
                    if (isFirst) {
                        isFirst = false;
                        Thread.sleep(INVISIBLE.toMillis() + 1000);
                    } else {
                        acknowledge(consumer, message);
                    }
                }
            } catch (ClientException | RuntimeException error) {
                say("ERROR " + word(error));
                Thread.sleep(100);
            }
        }
    }

    /** Consumes as messages come; each tenth one fails at its first attempt. */
    private static void push(ClientConfiguration server, String topic, String group) throws Exception {
        ClientServiceProvider.loadService().newPushConsumerBuilder()
            .setClientConfiguration(server)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                String key = key(message);
                say("GOT " + key + " " + message.getDeliveryAttempt());
                boolean fails = message.getDeliveryAttempt() == 1 && key.endsWith("7");
                say((fails ? "FAILED " : "DONE ") + key);
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        say("READY");
        Thread.currentThread().join();
    }

    /** Takes messages and acknowledges each; or leaves each tenth one at its first attempt, so that it comes again. */
    private static void simple(ClientConfiguration server, String topic, String group, boolean leaves)
        throws Exception {
        SimpleConsumer consumer = ClientServiceProvider.loadService().newSimpleConsumerBuilder()
            .setClientConfiguration(server)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .build();
        say("READY");
        while (true) {
            try {
                for (MessageView message : consumer.receive(AT_ONCE, INVISIBLE)) {
                    say("GOT " + key(message) + " " + message.getDeliveryAttempt());
                    if (leaves && message.getDeliveryAttempt() == 1 && key(message).endsWith("3")) {
                        say("LEFT " + key(message));
                    } else {
                        acknowledge(consumer, message);
                    }
                }
            } catch (ClientException | RuntimeException error) {
                say("ERROR " + word(error));
                Thread.sleep(100);
            }
        }
    }

    private static void acknowledge(SimpleConsumer consumer, MessageView message) {
        try {
            consumer.ack(message);
            say("DONE " + key(message));
        } catch (ClientException | RuntimeException error) { // it comes again, unless this was carried out
            say("UNSURE " + key(message) + " " + word(error));
        }
    }

    private static String key(MessageView message) {
        return message.getKeys().iterator().next();
    }

    private static String word(Exception error) {
        return error.toString().replaceAll("\\s+", "_");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
