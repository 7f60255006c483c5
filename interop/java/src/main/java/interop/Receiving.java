package interop;

import static interop.Lab.AWAIT;
import static interop.Lab.INVISIBLE;
import static interop.Lab.attempt;
import static interop.Lab.between;
import static interop.Lab.body;
import static interop.Lab.bytes;
import static interop.Lab.expect;
import static interop.Lab.since;
import static interop.Lab.topic;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.java.exception.NotFoundException;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/** Checks of sending and receiving. */
final class Receiving {
    private static final int HUNDRED = 100;
    private static final int BODY_MAX = 4 << 20;

    private final Lab lab;

    Receiving(Lab lab) {
        this.lab = lab;
    }

    /** The body size of message i of 100: mostly small, some large, one the largest. */
    private static int sizeOf(int i) {
        switch (i) {
            case 11: return 32 << 10;
            case 22: return (64 << 10) + 1;
            case 33: return 256 << 10;
            case 44: return 1 << 20;
            case 55: return (2 << 20) + 7;
            case 66: return 3 << 20;
            case 77: return BODY_MAX - 1;
            case 88: return BODY_MAX;
            default: return 1 + i * i % 2000;
        }
    }

    /** Message i of 100: what it holds must come back as it was. */
    private Message hundredth(int i) {
        return lab.message("send", String.valueOf(i), body(i, sizeOf(i)))
            .setTag("tag" + i % 5)
            .setKeys("key-" + lab.run + "-" + i, "größe-" + sizeOf(i))
            .addProperty("text", "naïve, 日本語, = & \"quoted\" " + i)
            .build();
    }

    void sendHundred() throws Exception {
        Duration invisible = Duration.ofSeconds(15);
        try (SimpleConsumer consumer = lab.consumer("send", "*")) {
            Map<String, Message> want = new HashMap<>();
            for (int i = 0; i < HUNDRED; i++) {
                Message message = hundredth(i);
                want.put(lab.send(message), message);
            }
            expect(want.size() == HUNDRED, "%d messages got %d ids", HUNDRED, want.size());
            for (long begin = System.nanoTime(); !want.isEmpty(); ) {
                expect(since(begin).toSeconds() < 20, "%d of %d messages did not come", want.size(), HUNDRED);
                for (MessageView view : lab.poll(consumer, invisible)) {
                    same(view, want.remove(view.getMessageId().toString()));
                    consumer.ack(view);
                }
            }
            lab.quiet(consumer, invisible.plusSeconds(2));
        }
    }

    /** Compares what was received with what was sent. */
    private static void same(MessageView got, Message want) {
        expect(want != null, "id %s was not sent, or came twice", got.getMessageId());
        String i = want.getProperties().get("i");
        byte[] body = new byte[want.getBody().remaining()];
        want.getBody().duplicate().get(body);
        expect(Arrays.equals(bytes(got), body), "message %s: another body, %d bytes of %d", i, bytes(got).length, body.length);
        expect(got.getTag().equals(want.getTag()), "message %s: tag %s, want %s", i, got.getTag(), want.getTag());
        expect(new HashSet<>(got.getKeys()).equals(new HashSet<>(want.getKeys())),
            "message %s: keys %s, want %s", i, got.getKeys(), want.getKeys());
        expect(got.getProperties().equals(want.getProperties()),
            "message %s: properties %s, want %s", i, got.getProperties(), want.getProperties());
        expect(!((MessageViewImpl) got).isCorrupted(), "message %s: the digest is wrong", i);
        attempt(got, 1);
    }

    void tagFilter() throws Exception {
        try (SimpleConsumer consumer = lab.consumer("tags", "a || b")) {
            String[] tags = {"a", "b", "c", null};
            for (int i = 0; i < 40; i++) {
                MessageBuilder message = lab.message("tags", String.valueOf(i), new byte[] {(byte) i});
                if (tags[i % 4] != null) {
                    message.setTag(tags[i % 4]);
                }
                lab.send(message.build());
            }
            for (MessageView view : lab.take(consumer, 20, INVISIBLE, Duration.ofSeconds(20))) {
                String tag = view.getTag().orElse("none");
                expect(tag.equals("a") || tag.equals("b"), "a message of tag %s came", tag);
                consumer.ack(view);
            }
            lab.quiet(consumer, AWAIT);
        }
    }

    /** An expression on properties; a property that is missing is NULL. */
    void sqlFilter() throws Exception {
        FilterExpression filter = new FilterExpression(
            "(price BETWEEN 10 AND 19 AND region IN ('eu', 'us')) OR vip IS NOT NULL", FilterExpressionType.SQL92);
        try (SimpleConsumer consumer = lab.consumer("sql", filter, false)) {
            String[] regions = {"eu", "us", "asia", null};
            Set<String> want = new HashSet<>();
            for (int i = 0; i < 40; i++) {
                MessageBuilder message = lab.message("sql", String.valueOf(i), new byte[] {(byte) i})
                    .addProperty("price", String.valueOf(i));
                if (regions[i % 4] != null) {
                    message.addProperty("region", regions[i % 4]);
                }
                if (i == 39) {
                    message.addProperty("vip", "true");
                }
                if (i >= 10 && i <= 19 && i % 4 < 2 || i == 39) {
                    want.add(String.valueOf(i));
                }
                lab.send(message.build());
            }
            Set<String> got = new HashSet<>();
            for (MessageView view : lab.take(consumer, want.size(), INVISIBLE, Duration.ofSeconds(20))) {
                got.add(view.getProperties().get("i"));
                consumer.ack(view);
            }
            expect(got.equals(want), "messages %s came, want %s", got, want);
            lab.quiet(consumer, AWAIT);
        }
    }

    void longPollWake() throws Exception {
        // Not while the other checks are at their busiest.
        Thread.sleep(6000);
        try (SimpleConsumer consumer = lab.consumer("wake", "*")) {
            long[] delays = new long[5];
            for (int i = 0; i < delays.length; i++) {
                CompletableFuture<MessageView> arrived = new CompletableFuture<>();
                long[] at = new long[1];
                Thread waiting = new Thread(() -> {
                    try {
                        MessageView view = lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(10)).get(0);
                        at[0] = System.nanoTime();
                        arrived.complete(view);
                    } catch (Exception e) {
                        arrived.completeExceptionally(e);
                    }
                });
                waiting.start();
                Thread.sleep(500); // it waits by now
                lab.send(lab.message("wake", String.valueOf(i), new byte[] {1}).build());
                long answered = System.nanoTime();
                MessageView view = arrived.get();
                waiting.join();
                delays[i] = Math.max(0, (at[0] - answered) / 1_000_000);
                consumer.ack(view);
            }
            Arrays.sort(delays);
            expect(delays[0] < 100 && delays[2] < 500,
                "messages came %s ms after their send, want one within 100 and half within 500", Arrays.toString(delays));
        }
    }

    void emptyPoll() throws Exception {
        try (SimpleConsumer consumer = lab.consumer("empty", "*")) {
            long begin = System.nanoTime();
            List<MessageView> views = lab.poll(consumer, INVISIBLE);
            expect(views.isEmpty(), "%d messages came", views.size());
            between("an empty poll ended", since(begin), 4500, 8000);
        }
    }

    void unknownTopic() throws Exception {
        String unknown = "it-java-unknown-" + lab.run;
        notFound("sending to", () -> lab.producer.send(
            lab.provider.newMessageBuilder().setTopic(unknown).setBody(new byte[] {1}).build()));
        try (SimpleConsumer consumer = lab.consumer("empty", "*")) {
            notFound("subscribing to", () -> consumer.subscribe(unknown, FilterExpression.SUB_ALL));
        }
    }

    private static void notFound(String what, Main.Check call) {
        try {
            call.run();
        } catch (Exception e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof NotFoundException) {
                    return;
                }
            }
            throw new IllegalStateException(what + " an unknown topic: " + e + ", want NotFoundException");
        }
        throw new IllegalStateException(what + " an unknown topic is no error");
    }

    /** Sends and receives through TLS. */
    void tls() throws Exception {
        byte[] body = body(1, 100_000);
        try (Producer producer = lab.producer(true, topic("tls")); SimpleConsumer consumer = lab.consumer("tls", "*", true)) {
            String id = producer.send(lab.message("tls", "1", body).build()).getMessageId().toString();
            MessageView view = lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(10)).get(0);
            expect(view.getMessageId().toString().equals(id) && Arrays.equals(bytes(view), body), "another message came");
            consumer.ack(view);
        }
    }
}
