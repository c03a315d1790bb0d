package dev.gantry.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The official gRPC client with its defaults, without TLS, as a load: one producer and one simple consumer, each
 * shared by threads that wait for every answer. Arguments: endpoints, the topic that is consumed, one that is only
 * sent to, the consumer group. Prints {@code READY}, and then answers the commands that it reads, a line each:
 * <ul>
 * <li>{@code SEND topic threads seconds}: {@code SENT messages failed nanos p50 p99}, the last two in microseconds;
 * <li>{@code RECEIVE threads seconds}: {@code RECEIVED messages failed nanos missing} once all that was acknowledged
 * to the producer is acknowledged by the consumer, or the time is over; then {@code IDLE} when no request waits;
 * <li>{@code COUNT}: {@code COUNTED messages} that were acknowledged to the producer so far, even amid the others.
 * </ul>
 * Ends with its input.
 */
public final class Load {
    private static final int BODY_BYTES = 1024;
    private static final int AT_ONCE = 32;
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final Duration AWAIT = Duration.ofSeconds(5); // the least that rocketmq-proxy takes
    private static final long RETRY_MILLIS = 100;

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ExecutorService lanes = Executors.newCachedThreadPool();
    private final AtomicInteger numbers = new AtomicInteger();
    private final AtomicLong acknowledged = new AtomicLong();
    private final String topic;
    private final Producer producer;
    private final SimpleConsumer consumer;
    private final BitSet sent = new BitSet(); // acknowledged to the producer, of the topic that is consumed
    private final BitSet consumed = new BitSet();
    private int missing; // sent, and not consumed

    private Load(ClientConfiguration server, String topic, String beside, String group) throws ClientException {
        this.topic = topic;
        producer = provider.newProducerBuilder().setClientConfiguration(server).setTopics(topic, beside).build();
        consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(server)
            .setConsumerGroup(group)
            .setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .build();
    }

    public static void main(String[] args) throws Exception {
        ClientConfiguration server = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false).build();
        Load load = new Load(server, args[1], args[2], args[3]);
        ExecutorService work = Executors.newSingleThreadExecutor();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        say("READY");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "COUNT":
                    say("COUNTED " + load.acknowledged.get());
                    break;
                case "SEND":
                    work.submit(orEnd(() -> load.send(words[1], Integer.parseInt(words[2]), nanos(words[3]))));
                    break;
                case "RECEIVE":
                    work.submit(orEnd(() -> load.receive(Integer.parseInt(words[1]), nanos(words[2]))));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    /** What a command does, after which there is an answer or no process that could be waited for. */
    private static Callable<Void> orEnd(Callable<Void> command) {
        return () -> {
            try {
                return command.call();
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
                throw error;
            }
        };
    }

    private Void send(String to, int threads, long nanos) throws Exception {
        AtomicLong failed = new AtomicLong();
        List<Future<LongStream.Builder>> running = new ArrayList<>();
        long begun = System.nanoTime();
        for (int thread = 0; thread < threads; thread++) {
            running.add(lanes.submit(() -> lane(to, begun + nanos, failed)));
        }
        LongStream all = LongStream.empty();
        for (Future<LongStream.Builder> lane : running) {
            all = LongStream.concat(all, lane.get().build());
        }
        long took = System.nanoTime() - begun;
        long[] micros = all.map(one -> one / 1000).sorted().toArray();
        say("SENT " + micros.length + " " + failed + " " + took + " " + share(micros, 0.5) + " " + share(micros, 0.99));
        return null;
    }

    /** Sends one message after the other; the nanoseconds that each acknowledged one took. */
    private LongStream.Builder lane(String to, long end, AtomicLong failed) throws InterruptedException {
        LongStream.Builder took = LongStream.builder();
        while (System.nanoTime() < end) {
            int number = numbers.getAndIncrement();
            byte[] body = new byte[BODY_BYTES];
            Arrays.fill(body, (byte) ('a' + number % 26));
            Message message = provider.newMessageBuilder().setTopic(to).setKeys("" + number).setBody(body).build();
            long begun = System.nanoTime();
            try {
                producer.send(message);
                took.add(System.nanoTime() - begun);
                acknowledged.incrementAndGet();
                if (to.equals(topic)) {
                    noteSent(number);
                }
            } catch (ClientException | RuntimeException error) {
                failed.incrementAndGet();
                Thread.sleep(RETRY_MILLIS);
            }
        }
        return took;
    }

    private Void receive(int threads, long nanos) throws Exception {
        AtomicLong done = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        AtomicLong last = new AtomicLong();
        long begun = System.nanoTime();
        List<Future<?>> running = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            running.add(lanes.submit(() -> take(begun, begun + nanos, done, failed, last)));
        }
        LongSupplier waiting = () -> running.stream().filter(lane -> !lane.isDone()).count();
        while (missing() > 0 && waiting.getAsLong() > 0) {
            Thread.sleep(2);
        }
        say("RECEIVED " + done + " " + failed + " " + last + " " + missing());
        for (Future<?> lane : running) {
            lane.get();
        }
        say("IDLE");
        return null;
    }

    /** Takes messages and acknowledges each, until none is missing. */
    private Void take(long begun, long end, AtomicLong done, AtomicLong failed, AtomicLong last)
        throws InterruptedException {
        while (System.nanoTime() < end && missing() > 0) {
            try {
                for (MessageView message : consumer.receive(AT_ONCE, INVISIBLE)) {
                    consumer.ack(message);
                    done.incrementAndGet();
                    last.accumulateAndGet(System.nanoTime() - begun, Math::max);
                    noteConsumed(Integer.parseInt(message.getKeys().iterator().next()));
                }
            } catch (ClientException | RuntimeException error) {
                failed.incrementAndGet();
                Thread.sleep(RETRY_MILLIS);
            }
        }
        return null;
    }

    private synchronized void noteSent(int number) {
        sent.set(number);
        missing += consumed.get(number) ? 0 : 1;
    }

    private synchronized void noteConsumed(int number) {
        missing -= sent.get(number) && !consumed.get(number) ? 1 : 0;
        consumed.set(number);
    }

    private synchronized int missing() {
        return missing;
    }

    private static long nanos(String seconds) {
        return (long) (Double.parseDouble(seconds) * 1e9);
    }

    /** The value that so many of them do not exceed; 0 of none. */
    private static long share(long[] ascending, double share) {
        return ascending.length == 0 ? 0 : ascending[(int) Math.ceil(ascending.length * share) - 1];
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
