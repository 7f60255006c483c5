package interop;

import static interop.Lab.INVISIBLE;
import static interop.Lab.expect;
import static interop.Lab.since;
import static interop.Lab.topic;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Checks of what comes before what. */
final class Order {
    private static final int FIFO = 10; // messages of a message group
    private static final String FAILING = "b3";
    private static final int PRIORITY = 24; // messages of a priority
    private static final int[] PRIORITIES = {1, 4, 6};

    private final Lab lab;

    Order(Lab lab) {
        this.lab = lab;
    }

    /** What a listener was given, by message group or lite topic. */
    private static final class Seen {
        private final Map<String, List<String>> names = new LinkedHashMap<>();
        private final List<String> all = new ArrayList<>();

        synchronized void add(String key, String name) {
            names.computeIfAbsent(key, k -> new ArrayList<>()).add(name);
            all.add(name);
            notifyAll();
        }

        synchronized List<String> of(String key) {
            return new ArrayList<>(names.getOrDefault(key, Collections.emptyList()));
        }

        synchronized int position(String name) {
            return all.indexOf(name);
        }

        /** Waits until a listener was given n in all. */
        synchronized void await(int n, Duration within) throws InterruptedException {
            long end = System.nanoTime() + within.toNanos();
            for (long left = within.toMillis(); all.size() < n && left > 0; left = (end - System.nanoTime()) / 1_000_000) {
                wait(left);
            }
            expect(all.size() >= n, "%d of %d deliveries came in time: %s", all.size(), n, names);
        }
    }

    /** The name of a message, with its attempt after the first. */
    private static String named(MessageView view) {
        int attempt = view.getDeliveryAttempt();
        return view.getProperties().get("i") + (attempt > 1 ? "/" + attempt : "");
    }

    /** A list of prefix1, prefix2, ... in order. */
    private static List<String> numbered(String prefix, int first, int last) {
        List<String> names = new ArrayList<>();
        for (int i = first; i <= last; i++) {
            names.add(prefix + i);
        }
        return names;
    }

    /** Three message groups, and a message of one of them fails twice. */
    void fifo() throws Exception {
        String[] groups = {"a", "b", "c"};
        for (int i = 1; i <= FIFO; i++) {
            for (String group : groups) {
                lab.send(lab.message("fifo", group + i, new byte[] {1}).setMessageGroup(group + "-" + lab.run).build());
            }
        }
        Seen seen = new Seen();
        try (PushConsumer consumer = lab.provider.newPushConsumerBuilder()
            .setClientConfiguration(Lab.config(lab.consuming, false))
            .setConsumerGroup(lab.group("fifo"))
            .setSubscriptionExpressions(Collections.singletonMap(topic("fifo"), FilterExpression.SUB_ALL))
            .setEnableFifoConsumeAccelerator(true) // message groups side by side
            .setMessageListener(view -> {
                if (!lab.run.equals(view.getProperties().get("run"))) {
                    return ConsumeResult.SUCCESS;
                }
                String i = view.getProperties().get("i");
                seen.add(view.getMessageGroup().orElse("none"), named(view));
                return i.equals(FAILING) && view.getDeliveryAttempt() < 3 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build()) {
            seen.await(groups.length * FIFO + 2, Duration.ofSeconds(30));
            Thread.sleep(3000); // none comes once more
        }
        for (String group : groups) {
            List<String> want = numbered(group, 1, FIFO);
            int at = want.indexOf(FAILING);
            if (at >= 0) {
                want.add(at + 1, FAILING + "/2");
                want.add(at + 2, FAILING + "/3");
            }
            List<String> got = seen.of(group + "-" + lab.run);
            expect(got.equals(want), "message group %s: %s came, want %s", group, got, want);
        }
        for (String last : new String[] {"a" + FIFO, "c" + FIFO}) {
            expect(seen.position(last) < seen.position(FAILING + "/3"), "%s waited for the message that failed", last);
        }
    }

    /**
     * Sends the low ones first: receives get the high ones first. Of a group's receives from a broker each
     * eighth begins with the oldest message, so no more than seven are looked at.
     */
    void priority() throws Exception {
        for (int priority : PRIORITIES) {
            for (int i = 0; i < PRIORITY; i++) {
                lab.send(lab.message("priority", String.valueOf(i), new byte[] {1}).setPriority(priority).build());
            }
        }
        int highest = PRIORITIES[PRIORITIES.length - 1];
        int[] got = new int[highest + 1];
        try (SimpleConsumer consumer = lab.consumer("priority", "*")) {
            int left = PRIORITIES.length * PRIORITY;
            long begin = System.nanoTime();
            for (int receives = 1; left > 0; receives++) {
                expect(since(begin).toSeconds() < 20, "%d messages did not come", left);
                int before = highest;
                for (MessageView view : lab.poll(consumer, INVISIBLE, receives == 1 ? 2 : Lab.BATCH)) {
                    int priority = view.getPriority().orElse(-1);
                    expect(priority >= 0 && priority <= highest, "a message came with priority %d", priority);
                    expect(receives > 7 || priority <= before, "priority %d came after %d in one receive", priority, before);
                    expect(receives > 1 || priority == highest, "priority %d came in the first receive", priority);
                    before = priority;
                    got[priority]++;
                    left--;
                    consumer.ack(view);
                }
            }
        }
        for (int priority : PRIORITIES) {
            expect(got[priority] == PRIORITY, "%d messages of priority %d, want %d", got[priority], priority, PRIORITY);
        }
    }

    /** Subscribes to two of three lite topics, later to one. */
    void lite() throws Exception {
        Seen seen = new Seen();
        String a = "a-" + lab.run;
        String b = "b-" + lab.run;
        String c = "c-" + lab.run;
        try (LitePushConsumer consumer = lab.provider.newLitePushConsumerBuilder()
            .setClientConfiguration(Lab.config(lab.consuming, false))
            .setConsumerGroup(lab.group("lite"))
            .bindTopic(topic("lite"))
            .setMessageListener(view -> {
                seen.add(view.getLiteTopic().orElse("none"), named(view));
                return ConsumeResult.SUCCESS;
            })
            .build()) {
            consumer.subscribeLite(a);
            consumer.subscribeLite(b);
            sendLite(1, 5, a, b, c);
            seen.await(10, Duration.ofSeconds(15));
            consumer.unsubscribeLite(b);
            sendLite(6, 10, a, b, c);
            seen.await(15, Duration.ofSeconds(15));
            Thread.sleep(2000); // no other comes
            expect(seen.of(b).equals(numbered(b, 1, 5)), "%s: %s came, want 1 to 5", b, seen.of(b));
            consumer.subscribeLite(b);
            seen.await(20, Duration.ofSeconds(15));
            Thread.sleep(1000);
        }
        for (String name : new String[] {a, b}) {
            expect(seen.of(name).equals(numbered(name, 1, 10)), "%s: %s came, want 1 to 10", name, seen.of(name));
        }
        expect(seen.of(c).isEmpty(), "%s came without a subscription", seen.of(c));
    }

    private void sendLite(int first, int last, String... names) throws Exception {
        for (int i = first; i <= last; i++) {
            for (String name : names) {
                lab.send(lab.message("lite", name + i, new byte[] {1}).setLiteTopic(name).build());
            }
        }
    }
}
