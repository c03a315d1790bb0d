package dev.gantry.interop;

import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * One Java client with its default settings, told what to do by arguments, telling what happened line by line:
 * {@code READY}, {@code ACK key queue offset millis}, {@code NACK status|error millis}, {@code MSG key queue offset body}.
 */
public final class Probe {
    private Probe() {
    }

    public static void main(String[] args) throws Exception {
        String nameServers = args[1];
        String topic = args[2];
        switch (args[0]) {
            case "produce":
                produce(nameServers, topic, Integer.parseInt(args[3]), Integer.parseInt(args[4]));
                break;
            case "lite-pull":
                litePull(nameServers, topic, Integer.parseInt(args[3]));
                break;
            case "pull":
                pull(nameServers, topic, Integer.parseInt(args[3]));
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    /** Sends {@code count} messages one after another, pausing {@code pauseMillis} after each. */
    private static void produce(String nameServers, String topic, int count, int pauseMillis) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        producer.setNamesrvAddr(nameServers);
        producer.start();
        say("READY");
        for (int number = 0; number < count; number++) {
            byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "TagA", "key-" + number, body);
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    say("ACK " + result.getMsgId() + " " + result.getMessageQueue().getQueueId() + " "
                        + result.getQueueOffset() + " " + millis());
                } else {
                    say("NACK " + result.getSendStatus() + " " + millis());
                }
            } catch (Exception error) {
                say("NACK " + error.toString().replaceAll("\\s+", "_") + " " + millis());
            }
            Thread.sleep(pauseMillis);
        }
        producer.shutdown();
    }

    /** Receives {@code count} messages, and whatever else is there, with the consumer that pulls for its caller. */
    private static void litePull(String nameServers, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("interop-lite-pull");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        say("READY");
        int received = 0;
        List<MessageExt> messages;
        do {
            messages = consumer.poll(1000);
            messages.forEach(Probe::sayMessage);
            received += messages.size();
        } while (received < count || !messages.isEmpty());
        consumer.commit();
        consumer.shutdown();
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

    private static long millis() {
        return System.nanoTime() / 1_000_000;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
