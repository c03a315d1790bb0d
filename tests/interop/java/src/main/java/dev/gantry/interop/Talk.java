package dev.gantry.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
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
 * Sets (a) to (d), each thing once and one after the other: what a recorder wants to hear. Ends with status 0 if every
 * step went as it should.
 *
 * <p>Usage: {@code Talk NAMESERVER}.
 */
public final class Talk {
    private static final String TOPIC = "talk";
    private static final String ORDERED = "talk-ordered";
    private static final String TRANSACTIONS = "talk-transactions";
    private static final int PATIENCE_SECONDS = 30;

    private final String nameServer;

    private Talk(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        int status = 1;
        try {
            Talk talk = new Talk(args[0]);
            talk.send();
            talk.push();
            talk.order();
            talk.broadcast();
            talk.pull();
            talk.transact();
            status = 0;
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(status); // the client leaves threads behind
    }

    /** A name that says nothing of the machine, and one connection to a broker for each. */
    private <C extends ClientConfig> C named(C client, String instance) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(instance);
        client.setPersistConsumerOffsetInterval(1000);
        return client;
    }

    // (a)

    private void send() throws Exception {
        DefaultMQProducer producer = named(new DefaultMQProducer("talk-producer"), "a");
        producer.start();
        SendResult sent = producer.send(message(TOPIC, "sync"));
        expect("sync", sent.getSendStatus() == SendStatus.SEND_OK);
        BlockingQueue<Object> answers = new LinkedBlockingQueue<>();
        producer.send(message(TOPIC, "async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                answers.add(result);
            }

            @Override
            public void onException(Throwable error) {
                answers.add(error);
            }
        });
        expect("async", answers.poll(PATIENCE_SECONDS, TimeUnit.SECONDS) instanceof SendResult);
        producer.sendOneway(message(TOPIC, "oneway"));
        producer.send(List.of(message(TOPIC, "batch0"), message(TOPIC, "batch1"), message(TOPIC, "batch2")));
        Message delayed = message(TOPIC, "delayed");
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        Message large = message(TOPIC, "large");
        large.setBody("large ".repeat(1000).getBytes(StandardCharsets.UTF_8)); // is compressed
        producer.send(large);
        for (int number = 0; number < 4; number++) {
            producer.send(message(ORDERED, "ordered" + number), (queues, one, key) -> queues.get((Integer) key), number % 2);
        }
        String id = sent.getOffsetMsgId();
        expect("view", producer.viewMessage(TOPIC, id).getKeys().equals("sync"));
        long now = System.currentTimeMillis();
        expect("query", !producer.queryMessage(TOPIC, "sync", 8, 0, now + 60_000).getMessageList().isEmpty());
        producer.shutdown();
    }

    private static Message message(String topic, String key) {
        return new Message(topic, "tag-" + key.replaceAll("\\d", ""), key, ("this is " + key).getBytes(StandardCharsets.UTF_8));
    }

    // (b)

    /** One of nine fails once and comes again; a second member joins, and hears that the first one leaves. */
    private void push() throws Exception {
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer first = concurrently("talk-push", "b1", "CLUSTERING", "*", got);
        takeAll(got, List.of("sync", "async", "oneway", "batch0", "batch1", "batch2", "delayed", "large"), 8);
        DefaultMQPushConsumer second = concurrently("talk-push", "b2", "CLUSTERING", "*", got);
        Thread.sleep(1500);
        first.shutdown();
        Thread.sleep(500);
        second.shutdown();
        DefaultMQPushConsumer tags = concurrently("talk-tags", "b3", "CLUSTERING", "tag-batch || absent", got);
        takeAll(got, List.of("batch0", "batch1", "batch2"), 3);
        tags.shutdown();
    }

    private DefaultMQPushConsumer pushConsumer(String group, String instance, String model) throws Exception {
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer(group), instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        Sets.setModel(consumer, model);
        return consumer;
    }

    private DefaultMQPushConsumer concurrently(
        String group, String instance, String model, String tags, BlockingQueue<String> got) throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer(group, instance, model);
        consumer.subscribe(TOPIC, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt one = messages.get(0); // they come one by one
            if (one.getKeys().equals("sync") && one.getReconsumeTimes() == 0 && group.equals("talk-push")) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            got.add(one.getKeys());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private void order() throws Exception {
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = pushConsumer("talk-orderly", "b4", "CLUSTERING");
        consumer.subscribe(ORDERED, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(one -> got.add(one.getKeys()));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        takeAll(got, List.of("ordered0", "ordered1", "ordered2", "ordered3"), 4);
        consumer.shutdown();
    }

    private void broadcast() throws Exception {
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = concurrently("talk-broadcast", "b5", "BROADCASTING", "*", got);
        takeAll(got, List.of("sync", "large"), 8);
        consumer.shutdown();
    }

    private static void takeAll(BlockingQueue<String> got, Collection<String> wanted, int count) throws Exception {
        List<String> taken = new ArrayList<>();
        while (taken.size() < count) {
            String one = got.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            expect("another one after " + taken, one != null);
            taken.add(one);
        }
        expect(wanted + " among " + taken, taken.containsAll(wanted));
    }

    // (c)

    private void pull() throws Exception {
        DefaultLitePullConsumer assigned = named(new DefaultLitePullConsumer("talk-assigned"), "c1");
        assigned.setAutoCommit(false);
        assigned.start();
        List<MessageQueue> queues = new ArrayList<>(assigned.fetchMessageQueues(ORDERED));
        queues.sort(null);
        MessageQueue queue = queues.get(0);
        assigned.assign(List.of(queue));
        assigned.seekToBegin(queue);
        List<MessageExt> found = assigned.poll(5000);
        expect("pulled", !found.isEmpty());
        assigned.seek(queue, 1);
        expect("sought", assigned.poll(5000).get(0).getQueueOffset() == 1);
        expect("by time", assigned.offsetForTimestamp(queue, found.get(0).getStoreTimestamp()) == 0);
        assigned.commitSync();
        expect("committed", assigned.committed(queue) == 2);
        assigned.seekToEnd(queue);
        assigned.shutdown();

        DefaultLitePullConsumer subscribed = named(new DefaultLitePullConsumer("talk-subscribed"), "c2");
        subscribed.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        subscribed.subscribe(ORDERED, "*");
        subscribed.start();
        int count = 0;
        for (int turn = 0; count < 4 && turn < PATIENCE_SECONDS; turn++) {
            count += subscribed.poll(1000).size();
        }
        expect("four, not " + count, count == 4);
        subscribed.shutdown();
    }

    // (d)

    private void transact() throws Exception {
        BlockingQueue<String> checked = new LinkedBlockingQueue<>();
        TransactionMQProducer producer = named(new TransactionMQProducer("talk-transactions"), "d");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                return (LocalTransactionState) outcome;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(message.getKeys());
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(message(TRANSACTIONS, "committed"), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(message(TRANSACTIONS, "rolled-back"), LocalTransactionState.ROLLBACK_MESSAGE);
        producer.sendMessageInTransaction(message(TRANSACTIONS, "left-open"), LocalTransactionState.UNKNOW);
        takeAll(checked, List.of("left-open"), 1);
        Thread.sleep(500); // the answer is one-way
        producer.shutdown();
    }

    private static void expect(String what, boolean holds) {
        if (!holds) {
            throw new IllegalStateException("not so: " + what);
        }
    }
}
