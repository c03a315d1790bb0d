package dev.gantry.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Everything applications do with the client, at once and for a while: all ways to send, all consumers, delays, retries,
 * dead letters, transactions. Prints what happened, line by line, for the test to judge:
 * {@code ACK topic key millis} (the broker said SEND_OK to what was sent then), {@code GOT consumer topic key times millis},
 * {@code TX key COMMIT|ROLLBACK}, {@code NACK topic key reason}, {@code FACT name value}, {@code DONE}.
 *
 * <p>Usage: {@code Sets NAMESERVERS PREFIX PATIENCE}: sends until its standard input ends, then waits up to so many
 * seconds until everything that was acknowledged has come to everyone who is to get it.
 */
public final class Sets {
    private static final int PAUSE_MILLIS = 40;
    private static final int KEYS = 8;
    private static final int FAILS_EVERY = 20;

    private final String nameServers;
    private final String prefix;
    private final AtomicBoolean sending = new AtomicBoolean(true);
    /** Consumer to topics it is to get everything of. */
    private final Map<String, List<String>> audience = new ConcurrentHashMap<>();
    private final Map<String, Set<String>> acknowledged = new ConcurrentHashMap<>();
    private final Map<String, Set<String>> received = new ConcurrentHashMap<>();
    private final List<AutoCloseable> open = new ArrayList<>();

    private Sets(String nameServers, String prefix) {
        this.nameServers = nameServers;
        this.prefix = prefix;
    }

    public static void main(String[] args) throws Exception {
        try {
            new Sets(args[0], args[1]).run(Integer.parseInt(args[2]));
            say("DONE");
        } catch (Exception error) {
            say("DIED " + error.toString().replaceAll("\\s+", "_") + " " + error.getStackTrace()[0]);
        }
        Runtime.getRuntime().halt(0); // the client leaves threads behind
    }

    private interface Sending {
        void send(int number) throws Exception;
    }

    private void run(int patience) throws Exception {
        DefaultMQProducer producer = producer();
        TransactionMQProducer transactions = transactionProducer();
        createTopics(producer);
        startConsumers();
        List<Thread> threads = new ArrayList<>();
        threads.add(repeat(number -> sync(producer, "sync", number)));
        threads.add(repeat(number -> async(producer, number)));
        threads.add(repeat(number -> oneway(producer, number)));
        threads.add(repeat(number -> batch(producer, number)));
        threads.add(repeat(number -> ordered(producer, number)));
        threads.add(repeat(number -> delayed(producer, number)));
        threads.add(repeat(number -> sync(producer, "cast", number)));
        threads.add(repeat(number -> transaction(transactions, number)));
        say("FACT started " + millis());
        while (System.in.read() >= 0) {
            continue; // nothing is ever said there
        }
        sending.set(false);
        for (Thread thread : threads) {
            thread.join();
        }
        awaitEverything(patience);
        readDeadLetters(patience);
        positions();
        for (AutoCloseable one : open) {
            one.close();
        }
    }

    // Sending

    private DefaultMQProducer producer() throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer(prefix + "-producer");
        producer.setNamesrvAddr(nameServers);
        producer.start();
        open.add(producer::shutdown);
        return producer;
    }

    private TransactionMQProducer transactionProducer() throws MQClientException {
        TransactionMQProducer producer = new TransactionMQProducer(prefix + "-tx-producer");
        producer.setNamesrvAddr(nameServers);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                int number = (Integer) argument;
                if (number % 3 == 2) {
                    return LocalTransactionState.UNKNOW; // the broker has to ask
                }
                return outcome(number);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                say("FACT checked " + message.getKeys());
                return outcome(Integer.parseInt(message.getKeys().substring(message.getKeys().lastIndexOf('-') + 1)));
            }
        });
        producer.start();
        open.add(producer::shutdown);
        return producer;
    }

    private static LocalTransactionState outcome(int number) {
        return number % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    /** One message to each topic, so that consumers find routes; as applications do that rely on creation by sending. */
    private void createTopics(DefaultMQProducer producer) throws InterruptedException {
        for (String name : Arrays.asList("sync", "async", "oneway", "batch", "order", "delay", "cast", "tx")) {
            while (true) {
                try {
                    producer.send(message(name, "first", 0));
                    break;
                } catch (InterruptedException interrupted) {
                    throw interrupted;
                } catch (Exception error) {
                    Thread.sleep(500);
                }
            }
        }
    }

    private Thread repeat(Sending one) {
        Thread thread = new Thread(() -> {
            for (int number = 0; sending.get(); number++) {
                try {
                    one.send(number);
                    Thread.sleep(PAUSE_MILLIS);
                } catch (InterruptedException interrupted) {
                    return;
                } catch (Exception error) {
                    say("NACK - " + number + " " + error.toString().replaceAll("\\s+", "_"));
                }
            }
        });
        thread.start();
        return thread;
    }

    private Message message(String name, String kind, int number) {
        String key = prefix + "-" + name + "-" + kind + "-" + number;
        byte[] body = key.getBytes(StandardCharsets.UTF_8);
        if (number % 10 == 3) {
            body = Arrays.copyOf(body, 6000); // the client compresses what is longer than 4 KiB
        }
        return new Message(topic(name), number % 2 == 0 ? "even" : "odd", key, body);
    }

    private String topic(String name) {
        return prefix + "-" + name;
    }

    private void sync(DefaultMQProducer producer, String name, int number) throws Exception {
        Message message = message(name, "s", number);
        long began = millis();
        acknowledge(message, producer.send(message), began);
    }

    private void async(DefaultMQProducer producer, int number) throws Exception {
        Message message = message("async", "a", number);
        CountDownLatch answered = new CountDownLatch(1);
        long began = millis();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                acknowledge(message, result, began);
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                say("NACK " + message.getTopic() + " " + message.getKeys() + " " + error.toString().replaceAll("\\s+", "_"));
                answered.countDown();
            }
        });
        answered.await();
    }

    private void oneway(DefaultMQProducer producer, int number) throws Exception {
        producer.sendOneway(message("oneway", "o", number));
    }

    private void batch(DefaultMQProducer producer, int number) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int part = 0; part < 4; part++) {
            Message one = message("batch", "b" + part, number);
            one.setBody(one.getKeys().getBytes(StandardCharsets.UTF_8));
            messages.add(one);
        }
        long began = millis();
        SendResult result = producer.send(messages);
        for (Message one : messages) {
            acknowledge(one, result, began);
        }
    }

    private void ordered(DefaultMQProducer producer, int number) throws Exception {
        int key = number % KEYS;
        Message message = message("order", "k" + key, number);
        long began = millis();
        SendResult result = producer.send(message, (queues, sent, by) -> queues.get((Integer) by % queues.size()), key);
        acknowledge(message, result, began);
    }

    private void delayed(DefaultMQProducer producer, int number) throws Exception {
        int level = 1 + number % 2; // a second, or five
        Message message = message("delay", "d" + level, number);
        message.setDelayTimeLevel(level);
        long began = millis();
        acknowledge(message, producer.send(message), began);
    }

    private void transaction(TransactionMQProducer producer, int number) throws Exception {
        Message message = message("tx", "t", number);
        boolean commits = outcome(number) == LocalTransactionState.COMMIT_MESSAGE;
        SendStatus status = producer.sendMessageInTransaction(message, number).getSendStatus();
        if (commits && status != SendStatus.SEND_OK) {
            // The client rolls back what was stored and not confirmed, and does not ask the listener first. Where that
            // roll-back is lost, a check commits it: nothing is promised.
            say("NACK " + message.getTopic() + " " + message.getKeys() + " " + status);
            return;
        }
        say("TX " + message.getKeys() + " " + (commits ? "COMMIT" : "ROLLBACK") + " " + millis());
        if (commits) {
            acknowledged.computeIfAbsent(message.getTopic(), unused -> ConcurrentHashMap.newKeySet()).add(message.getKeys());
        }
    }

    private void acknowledge(Message message, SendResult result, long began) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            acknowledged.computeIfAbsent(message.getTopic(), unused -> ConcurrentHashMap.newKeySet()).add(message.getKeys());
            say("ACK " + message.getTopic() + " " + message.getKeys() + " " + began);
        } else {
            say("NACK " + message.getTopic() + " " + message.getKeys() + " " + result.getSendStatus());
        }
    }

    // Consuming

    private void startConsumers() throws Exception {
        concurrently("push", "CLUSTERING", "1", "*", "sync", "async", "batch", "delay", "tx");
        concurrently("cast", "BROADCASTING", "1", "*", "cast");
        concurrently("cast", "BROADCASTING", "2", "*", "cast");
        concurrently("tags", "CLUSTERING", "1", "even || absent", "sync");
        orderly();
        litePull("sync");
        deadLetters();
    }

    private DefaultMQPushConsumer pushConsumer(String group, String model, String instance) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(prefix + "-" + group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        setModel(consumer, model);
        open.add(consumer::shutdown);
        return consumer;
    }

    /** {@code MessageModel} is in another package from 5.0 on. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setModel(DefaultMQPushConsumer consumer, String model) throws Exception {
        for (var method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], model));
            }
        }
    }

    private void concurrently(String group, String model, String instance, String tags, String... names) throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer(group, model, instance);
        String who = group + instance;
        for (String name : names) {
            consumer.subscribe(topic(name), tags);
            if (tags.equals("*")) {
                audience.computeIfAbsent(who, unused -> new ArrayList<>()).add(topic(name));
            }
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                int number = number(message);
                if (who.equals("push1") && number % FAILS_EVERY == 7 && message.getReconsumeTimes() == 0) {
                    say("FACT failed " + message.getKeys());
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                got(who, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private void orderly() throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer("orderly", "CLUSTERING", "1");
        consumer.subscribe(topic("order"), "*");
        audience.put("orderly1", List.of(topic("order")));
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> got("orderly1", message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
    }

    /** A consumer that never succeeds: after one retry its messages are dead letters, which another one reads. */
    private void deadLetters() throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer("failing", "CLUSTERING", "1");
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic("oneway"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("FACT refused " + message.getKeys() + " " + message.getReconsumeTimes());
            }
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    /** All there are after a while without another one. */
    private void readDeadLetters(int patience) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(prefix + "-dead");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET); // should the client lose a seek
        consumer.start();
        String topic = "%DLQ%" + prefix + "-failing";
        consumer.assign(consumer.fetchMessageQueues(topic));
        for (MessageQueue queue : consumer.fetchMessageQueues(topic)) {
            consumer.seekToBegin(queue);
        }
        int silentSeconds = 0;
        for (int second = 0; silentSeconds < 3 && second < patience; second++) {
            List<MessageExt> messages = consumer.poll(1000);
            messages.forEach(message -> say("FACT dead " + message.getKeys() + " " + message.getReconsumeTimes()));
            silentSeconds = messages.isEmpty() ? silentSeconds + 1 : 0;
        }
        consumer.shutdown();
    }

    private void litePull(String name) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(prefix + "-lite");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic(name), "*");
        consumer.start();
        open.add(consumer::shutdown);
        audience.put("lite", List.of(topic(name)));
        Thread thread = new Thread(() -> {
            while (true) {
                try {
                    consumer.poll(1000).forEach(message -> got("lite", message));
                } catch (Exception error) {
                    return; // it was shut down
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static int number(MessageExt message) {
        return Integer.parseInt(message.getKeys().substring(message.getKeys().lastIndexOf('-') + 1));
    }

    private void got(String who, MessageExt message) {
        String key = message.getKeys();
        if (!new String(message.getBody(), StandardCharsets.UTF_8).startsWith(key)) {
            say("FACT spoiled " + key);
        }
        received.computeIfAbsent(who, unused -> ConcurrentHashMap.newKeySet()).add(key);
        say("GOT " + who + " " + message.getTopic() + " " + key + " " + message.getReconsumeTimes() + " " + millis());
    }

    private void awaitEverything(int patience) throws InterruptedException {
        long deadline = millis() + patience * 1000L;
        String missing = missing();
        while (missing != null && millis() < deadline) {
            Thread.sleep(500);
            missing = missing();
        }
        if (missing != null) {
            say("FACT missing " + missing);
        }
    }

    private String missing() {
        for (Map.Entry<String, List<String>> one : audience.entrySet()) {
            Set<String> got = received.getOrDefault(one.getKey(), Set.of());
            for (String topic : one.getValue()) {
                for (String key : acknowledged.getOrDefault(topic, Set.of())) {
                    if (!got.contains(key)) {
                        return one.getKey() + " " + key;
                    }
                }
            }
        }
        return null;
    }

    // Positions, and queries

    private void positions() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(prefix + "-assigned");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET); // should the client lose a seek
        consumer.setAutoCommit(false);
        consumer.start();
        MessageQueue queue = consumer.fetchMessageQueues(topic("order")).iterator().next();
        consumer.assign(List.of(queue));
        consumer.seekToBegin(queue);
        List<MessageExt> first = List.of();
        for (int turn = 0; first.isEmpty() && turn < 10; turn++) {
            first = consumer.poll(1000);
        }
        MessageExt one = first.get(Math.min(2, first.size() - 1));
        long got = -1;
        for (int turn = 0; got != one.getQueueOffset() && turn < 5; turn++) {
            got = seekAndPoll(consumer, queue, one.getQueueOffset());
        }
        say("FACT sought " + one.getQueueOffset() + " " + got);
        say("FACT by-time " + one.getQueueOffset() + " " + consumer.offsetForTimestamp(queue, one.getStoreTimestamp()));
        consumer.commitSync();
        say("FACT committed " + consumer.committed(queue));
        DefaultMQProducer producer = producer();
        MessageExt viewed = producer.viewMessage(queue.getTopic(), one.getMsgId());
        say("FACT viewed " + one.getKeys() + " " + viewed.getKeys());
        long found = producer.queryMessage(queue.getTopic(), one.getKeys(), 8, 0, System.currentTimeMillis() + 60_000)
            .getMessageList().stream().filter(message -> message.getKeys().equals(one.getKeys())).count();
        say("FACT queried " + found);
        consumer.shutdown();
    }

    /**
     * The offset of the last message that came: the sought one if it came at all. After a seek the client
     * (DefaultLitePullConsumerImpl, PullTaskImpl.run and nextPullOffset) may hand out what an older pull brings, and
     * it loses the position if the pull that the seek cancels takes it. A caller seeks again.
     */
    private static long seekAndPoll(DefaultLitePullConsumer consumer, MessageQueue queue, long offset) throws Exception {
        consumer.seek(queue, offset);
        long last = -1;
        for (int turn = 0; turn < 10; turn++) {
            for (MessageExt message : consumer.poll(1000)) {
                last = message.getQueueOffset();
                if (last == offset) {
                    return last;
                }
            }
        }
        return last;
    }

    private static long millis() {
        return System.currentTimeMillis();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
