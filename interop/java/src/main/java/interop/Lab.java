package interop;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** What the checks share: addresses, and a producer. */
final class Lab implements AutoCloseable {
    /** Long poll of the simple consumers. */
    static final Duration AWAIT = Duration.ofSeconds(5);
    /** The shortest invisible duration that a server takes. */
    static final Duration INVISIBLE = Duration.ofSeconds(10);
    static final int BATCH = 16;

    final ClientServiceProvider provider = ClientServiceProvider.loadService();
    final String producing;
    final String consuming;
    final String run;
    final Producer producer;

    Lab(String producing, String consuming, String run) throws ClientException {
        this.producing = producing;
        this.consuming = consuming;
        this.run = run;
        this.producer = producer(false, topic("send"));
    }

    static String topic(String check) {
        return "it-java-" + check;
    }

    String group(String check) {
        return topic(check) + "-" + run;
    }

    static ClientConfiguration config(String endpoints, boolean tls) {
        return ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(tls).build();
    }

    Producer producer(boolean tls, String topic) throws ClientException {
        return provider.newProducerBuilder()
            .setClientConfiguration(config(producing, tls))
            .setTopics(topic)
            .build();
    }

    SimpleConsumer consumer(String check, String tags) throws ClientException {
        return consumer(check, tags, false);
    }

    SimpleConsumer consumer(String check, String tags, boolean tls) throws ClientException {
        return consumer(check, new FilterExpression(tags), tls);
    }

    SimpleConsumer consumer(String check, FilterExpression filter, boolean tls) throws ClientException {
        return provider.newSimpleConsumerBuilder()
            .setClientConfiguration(config(consuming, tls))
            .setConsumerGroup(group(check))
            .setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Collections.singletonMap(topic(check), filter))
            .build();
    }

    /** A message of this run: a consumer passes over those of other runs. */
    MessageBuilder message(String check, String i, byte[] body) {
        return provider.newMessageBuilder().setTopic(topic(check)).setBody(body)
            .addProperty("run", run).addProperty("i", i);
    }

    /** Sends and returns the id that the server answered. */
    String send(Message message) throws ClientException {
        return producer.send(message).getMessageId().toString();
    }

    /** One receive; messages of other runs are acknowledged and left out. */
    List<MessageView> poll(SimpleConsumer consumer, Duration invisible) throws ClientException {
        return poll(consumer, invisible, BATCH);
    }

    List<MessageView> poll(SimpleConsumer consumer, Duration invisible, int batch) throws ClientException {
        List<MessageView> ours = new ArrayList<>();
        for (MessageView view : consumer.receive(batch, invisible)) {
            if (run.equals(view.getProperties().get("run"))) {
                ours.add(view);
            } else {
                consumer.ack(view);
            }
        }
        return ours;
    }

    /** Polls until it has n messages, at most for a time. */
    List<MessageView> take(SimpleConsumer consumer, int n, Duration invisible, Duration within) throws ClientException {
        long begin = System.nanoTime();
        List<MessageView> got = new ArrayList<>();
        while (got.size() < n) {
            expect(since(begin).compareTo(within) < 0, "%d of %d messages came in time", got.size(), n);
            got.addAll(poll(consumer, invisible));
        }
        expect(got.size() == n, "%d messages came, want %d", got.size(), n);
        return got;
    }

    /** Polls for a time in which nothing must come. */
    void quiet(SimpleConsumer consumer, Duration time) throws ClientException {
        long begin = System.nanoTime();
        while (since(begin).compareTo(time) < 0) {
            for (MessageView view : poll(consumer, INVISIBLE)) {
                expect(false, "message %s came again, attempt %d", view.getProperties().get("i"), view.getDeliveryAttempt());
            }
        }
    }

    static Duration since(long nanoTime) {
        return Duration.ofNanos(System.nanoTime() - nanoTime);
    }

    static void expect(boolean ok, String format, Object... args) {
        if (!ok) {
            throw new IllegalStateException(String.format(format, args));
        }
    }

    static void attempt(MessageView view, int want) {
        expect(view.getDeliveryAttempt() == want, "delivery attempt %d, want %d", view.getDeliveryAttempt(), want);
    }

    static void between(String what, Duration took, long loMillis, long hiMillis) {
        long ms = took.toMillis();
        expect(ms >= loMillis && ms <= hiMillis, "%s after %d ms, want %d to %d", what, ms, loMillis, hiMillis);
    }

    static byte[] bytes(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return bytes;
    }

    /** Bytes that cannot be compressed, always the same for one i. */
    static byte[] body(int i, int size) {
        byte[] bytes = new byte[size];
        new Random(i).nextBytes(bytes);
        return bytes;
    }

    @Override
    public void close() throws Exception {
        producer.close();
    }
}
