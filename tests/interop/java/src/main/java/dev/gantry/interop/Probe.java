package dev.gantry.interop;

import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * One Java client with its default settings, told what to do by arguments, telling what happened line by line:
 * {@code READY}, {@code ACK key queue offset millis}, {@code NACK status|error millis}, {@code MSG key queue offset body},
 * {@code WAIT error millis}, {@code END acknowledged refused}, {@code SENT status millis}, {@code TRY key times millis topic},
 * {@code MEMBER clientId}, {@code HOLDS millis group:queue,...}, {@code GOT key group:queue offset},
 * {@code DONE key group:queue offset begin end}, {@code REPLY question text millis},
 * {@code UNANSWERED question error millis},
 * {@code SAID text status}, {@code UNSAID text error remark}.
 */
public final class Probe {
    /** What the last send may take after SIGTERM: three attempts within the client's timeout of 3 s, and a reserve. */
    private static final long LAST_SEND_MILLIS = 10_000;

    /** What a reply may take. */
    private static final long REPLY_MILLIS = 3_000;

    /** What the first answer of a name server may take. */
    private static final long WARM_MILLIS = 60_000;

    private Probe() {
    }

    public static void main(String[] args) {
        try {
            warm(args[1]);
            run(args);
        } catch (Exception failed) {
            failed.printStackTrace();
            Runtime.getRuntime().halt(1); // the client leaves threads behind
        }
    }

    private static void run(String[] args) throws Exception {
        String nameServers = args[1];
        String topic = args[2];
        switch (args[0]) {
            case "produce":
                produce(nameServers, topic, Integer.parseInt(args[3]), Integer.parseInt(args[4]));
                break;
            case "sends":
                sends(nameServers, topic, Integer.parseInt(args[3]));
                break;
            case "soak":
                soak(nameServers, topic, Integer.parseInt(args[3]));
                break;
            case "lite-pull":
                litePull(nameServers, topic, Integer.parseInt(args[3]), selector(args));
                break;
            case "pull":
                pull(nameServers, topic, Integer.parseInt(args[3]));
                break;
            case "retry":
                retry(nameServers, topic, Integer.parseInt(args[3]));
                break;
            case "push":
                push(nameServers, topic, args[3]);
                break;
            case "member":
                member(nameServers, topic, args[3], selector(args));
                break;
            case "pop":
                pop(nameServers, topic, args[3], selector(args));
                break;
            case "request":
                request(nameServers, topic, Integer.parseInt(args[3]));
                break;
            case "reply":
                reply(nameServers, topic, args[3]);
                break;
            case "orderly":
                orderly(nameServers, topic, args[3], Integer.parseInt(args[4]));
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    /** What a consumer wants, by the SQL that may follow its other arguments. */
    private static MessageSelector selector(String[] args) {
        return args.length > 4 ? MessageSelector.bySql(args[4]) : MessageSelector.byTag("*");
    }

    /** Sends {@code count} messages one after another, pausing {@code pauseMillis} after each. */
    private static void produce(String nameServers, String topic, int count, int pauseMillis) throws Exception {
        DefaultMQProducer producer = producer(nameServers);
        for (int number = 0; number < count; number++) {
            String outcome = send(producer, topic, number);
            say((outcome.startsWith("ACK ") ? outcome : "NACK " + outcome) + " " + millis());
            Thread.sleep(pauseMillis);
        }
        producer.shutdown();
    }

    /** Sends {@code count} messages one after another, and tells each as a line of JSON, as the programs in Go and C++ do. */
    private static void sends(String nameServers, String topic, int count) throws Exception {
        DefaultMQProducer producer = producer(nameServers);
        for (int number = 0; number < count; number++) {
            String key = "java-" + number;
            long begin = System.currentTimeMillis();
            String result;
            try {
                byte[] body = key.getBytes(StandardCharsets.UTF_8);
                result = producer.send(new Message(topic, "TagA", key, body)).getSendStatus().name();
            } catch (Exception failed) {
                result = failed.getClass().getSimpleName();
                Thread.sleep(10);
            }
            say("{\"key\":\"" + key + "\",\"begin\":" + begin + ",\"end\":" + System.currentTimeMillis() + ",\"result\":\"" + result + "\"}");
        }
        producer.shutdown();
    }

    /**
     * Sends one message after another until SIGTERM, which ends it with status 0 after the message under way. What fails
     * before the first acknowledgement is waiting for the topic, told at most once a second; what fails later counts.
     */
    private static void soak(String nameServers, String topic, int pauseMillis) throws Exception {
        AtomicBoolean stopping = new AtomicBoolean();
        Thread sender = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.set(true);
            try {
                sender.join(LAST_SEND_MILLIS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
            // Otherwise the status would be that of the signal.
            Runtime.getRuntime().halt(sender.isAlive() ? 1 : 0);
        }));
        DefaultMQProducer producer = producer(nameServers);
        long acknowledged = 0;
        long refused = 0;
        long toldMillis = millis() - 1000;
        for (int number = 0; !stopping.get(); number++) {
            String outcome = send(producer, topic, number);
            long millis = millis();
            if (outcome.startsWith("ACK ")) {
                acknowledged++;
                say(outcome + " " + millis);
            } else if (acknowledged > 0) {
                refused++;
                say("NACK " + outcome + " " + millis);
            } else if (millis - toldMillis >= 1000) {
                toldMillis = millis;
                say("WAIT " + outcome + " " + millis);
            }
            Thread.sleep(pauseMillis);
        }
        producer.shutdown();
        say("END " + acknowledged + " " + refused);
    }

    /** Sends one message with a delay of a second, and fails to consume it until its last retry, {@code limit}. */
    private static void retry(String nameServers, String topic, int limit) throws Exception {
        DefaultMQProducer producer = producer(nameServers);
        Message message = new Message(topic, "TagA", "key-0", "message 0".getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(1);
        SendResult result = producer.send(message);
        say("SENT " + result.getSendStatus() + " " + millis());
        CountDownLatch tried = new CountDownLatch(limit + 1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("interop-retry");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(limit);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                say("TRY " + one.getKeys() + " " + one.getReconsumeTimes() + " " + millis() + " " + one.getTopic());
                tried.countDown();
            }
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        tried.await(90, TimeUnit.SECONDS);
        Thread.sleep(1000); // the last one is on its way to the dead letters
        consumer.shutdown();
        producer.shutdown();
    }

    /**
     * Has a client of its own ask the name server until it is answered. On a busy machine the classes of a client take
     * longer to load than its request may take (3 s), and the client that is judged would fail for that.
     */
    private static void warm(String nameServers) throws Exception {
        DefaultMQProducer client = new DefaultMQProducer("interop-warm");
        client.setNamesrvAddr(nameServers);
        client.setInstanceName("warm");
        client.start();
        long endMillis = millis() + WARM_MILLIS;
        while (true) {
            try {
                client.fetchPublishMessageQueues("interop-warm");
                break;
            } catch (MQClientException failed) {
                boolean answered = failed.getCause() instanceof MQClientException; // there is no such topic
                if (answered) {
                    break;
                }
                if (millis() > endMillis) {
                    throw failed;
                }
                Thread.sleep(100);
            }
        }
        client.shutdown();
    }

    private static DefaultMQProducer producer(String nameServers) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        producer.setNamesrvAddr(nameServers);
        producer.start();
        say("READY");
        return producer;
    }

    /** Sends one message; returns {@code ACK key queue offset}, or in one word what came instead. */
    private static String send(DefaultMQProducer producer, String topic, int number) throws InterruptedException {
        byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
        try {
            SendResult result = producer.send(new Message(topic, "TagA", "key-" + number, body));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                return result.getSendStatus().toString();
            }
            return "ACK " + result.getMsgId() + " " + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset();
        } catch (InterruptedException interrupted) {
            throw interrupted;
        } catch (Exception error) {
            // After its last try the client says only how many there were; the cause is what ended that one.
            String cause = error.getCause() == null ? "" : " cause: " + error.getCause();
            return (error + cause).replaceAll("\\s+", "_");
        }
    }

    /**
     * Receives {@code count} messages, and then what else comes until there were three seconds of silence, with the
     * consumer that pulls for its caller.
     */
    private static void litePull(String nameServers, String topic, int count, MessageSelector wanted) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("interop-lite-pull");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, wanted);
        consumer.start();
        say("READY");
        int received = 0;
        int silentSeconds = 0;
        while (received < count || silentSeconds < 3) {
            List<MessageExt> messages = consumer.poll(1000);
            messages.forEach(Probe::sayMessage);
            received += messages.size();
            silentSeconds = messages.isEmpty() ? silentSeconds + 1 : 0;
        }
        consumer.commitSync();
        consumer.shutdown();
    }

    /** Is a member of a consumer group until the process is ended. */
    private static void push(String nameServers, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(Probe::sayMessage);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("READY");
        Thread.currentThread().join();
    }

    /** Is a member of a consumer group until the process is ended, and tells twice a second which queues it holds. */
    @SuppressWarnings("deprecation")
    private static void member(String nameServers, String topic, String group, MessageSelector wanted) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, wanted);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                say("GOT " + one.getMsgId() + " " + place(context.getMessageQueue()) + " " + one.getQueueOffset());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("MEMBER " + consumer.buildMQClientId());
        Map<MessageQueue, ?> held = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        while (true) {
            say("HOLDS " + millis() + " " + held.keySet().stream().filter(queue -> queue.getTopic().equals(topic))
                .map(Probe::place).sorted().collect(Collectors.joining(",")));
            Thread.sleep(500);
        }
    }

    /**
     * Is a member of a consumer group that consumes in order until the process is ended, a message for {@code takesMillis};
     * tells the begin and the end of each, by the clock that all processes share.
     */
    private static void orderly(String nameServers, String topic, String group, int takesMillis) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt one : messages) {
                long begin = millis();
                try {
                    Thread.sleep(takesMillis);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
                say("DONE " + one.getMsgId() + " " + place(context.getMessageQueue()) + " " + one.getQueueOffset() + " " + begin + " " + millis());
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        say("MEMBER " + consumer.buildMQClientId());
        Thread.currentThread().join();
    }

    /**
     * Asks one question after the other until the process is ended, pausing {@code pauseMillis} after each. By callback: the
     * request of 5.3.3 that waits gives up as soon as the question is sent.
     */
    private static void request(String nameServers, String topic, int pauseMillis) throws Exception {
        DefaultMQProducer producer = producer(nameServers);
        say("READY");
        for (int number = 0; ; number++) {
            String question = "question-" + number;
            CountDownLatch ended = new CountDownLatch(1);
            RequestCallback callback = new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    say("REPLY " + question + " " + new String(reply.getBody(), StandardCharsets.UTF_8) + " " + millis());
                    ended.countDown();
                }

                @Override
                public void onException(Throwable failed) {
                    say("UNANSWERED " + question + " " + failed.getClass().getSimpleName() + " " + millis());
                    ended.countDown();
                }
            };
            try {
                producer.request(new Message(topic, "TagA", question.getBytes(StandardCharsets.UTF_8)), callback, REPLY_MILLIS);
            } catch (Exception failed) {
                callback.onException(failed);
            }
            ended.await();
            Thread.sleep(pauseMillis);
        }
    }

    /** Is a member of a consumer group that answers every message, until the process is ended. */
    private static void reply(String nameServers, String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(nameServers);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                String text = "answer-to-" + new String(one.getBody(), StandardCharsets.UTF_8);
                try {
                    SendResult sent = producer.send(MessageUtil.createReplyMessage(one, text.getBytes(StandardCharsets.UTF_8)));
                    say("SAID " + text + " " + sent.getSendStatus());
                } catch (Exception failed) {
                    say("UNSAID " + text + " " + failed.getClass().getSimpleName() + " " + String.valueOf(failed.getMessage()).replace(' ', '_'));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("MEMBER " + consumer.buildMQClientId());
        Thread.currentThread().join();
    }

    /**
     * Is a member of a consumer group that its broker may have pop, until the process is ended; fails the first try of
     * each tenth message.
     */
    private static void pop(String nameServers, String topic, String group, MessageSelector wanted) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Asks the broker for its queues, and how to get messages. Clients of 4.x, for which this is compiled too, cannot.
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class).invoke(consumer, 10_000L);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, wanted);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            boolean popped = message.getProperty("POP_CK") != null;
            boolean fails = message.getReconsumeTimes() == 0 && message.getQueueOffset() % 10 == 9;
            say((fails ? "FAILED " : "GOT ") + message.getMsgId() + " " + place(context.getMessageQueue()) + " "
                + message.getQueueOffset() + " " + message.getReconsumeTimes() + " " + popped);
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("MEMBER " + consumer.buildMQClientId());
        Thread.currentThread().join();
    }

    private static String place(MessageQueue queue) {
        return queue.getBrokerName() + ":" + queue.getQueueId();
    }

    /** Receives {@code count} messages queue by queue, as callers of the old pull consumer do. */
    @SuppressWarnings("deprecation")
    private static void pull(String nameServers, String topic, int count) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-pull");
        consumer.setNamesrvAddr(nameServers);
        consumer.start();
        say("READY");
        Collection<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
        Map<MessageQueue, Long> offsets = new HashMap<>();
        int received = 0;
        while (received < count) {
            for (MessageQueue queue : queues) {
                long offset = offsets.getOrDefault(queue, 0L);
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(Probe::sayMessage);
                    received += result.getMsgFoundList().size();
                }
                offsets.put(queue, result.getNextBeginOffset());
                consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
            }
        }
        consumer.shutdown();
    }

    private static void sayMessage(MessageExt message) {
        say("MSG " + message.getMsgId() + " " + message.getQueueId() + " " + message.getQueueOffset() + " "
            + new String(message.getBody(), StandardCharsets.UTF_8));
    }

    /** CLOCK_MONOTONIC on Linux: comparable with that of other processes and containers on the same machine. */
    private static long millis() {
        return System.nanoTime() / 1_000_000;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
