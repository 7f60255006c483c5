package interop;

import static interop.Lab.expect;
import static interop.Lab.topic;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** The check of a push consumer, one of whose messages fails once. */
final class Push {
    private static final int N = 50;
    private static final String FAILING = "7";

    private final Lab lab;
    private final Map<String, List<Integer>> attempts = new HashMap<>();
    private final List<Long> times = new ArrayList<>(); // of the failing message
    private int done;

    Push(Lab lab) {
        this.lab = lab;
    }

    private synchronized ConsumeResult listen(MessageView view) {
        if (!lab.run.equals(view.getProperties().get("run"))) {
            return ConsumeResult.SUCCESS;
        }
        String i = view.getProperties().get("i");
        attempts.computeIfAbsent(i, key -> new ArrayList<>()).add(view.getDeliveryAttempt());
        if (i.equals(FAILING)) {
            times.add(System.nanoTime());
            if (times.size() == 1) {
                return ConsumeResult.FAILURE;
            }
        }
        done++;
        notifyAll();
        return ConsumeResult.SUCCESS;
    }

    void consume() throws Exception {
        try (PushConsumer consumer = lab.provider.newPushConsumerBuilder()
            .setClientConfiguration(Lab.config(lab.consuming, false))
            .setConsumerGroup(lab.group("push"))
            .setSubscriptionExpressions(Collections.singletonMap(topic("push"), FilterExpression.SUB_ALL))
            .setMessageListener(this::listen)
            .build()) {
            for (int i = 0; i < N; i++) {
                lab.send(lab.message("push", String.valueOf(i), new byte[] {1}).build());
            }
            synchronized (this) {
                for (long left = 20_000, end = System.nanoTime() + 20_000_000_000L; done < N && left > 0; ) {
                    wait(left);
                    left = (end - System.nanoTime()) / 1_000_000;
                }
                expect(done >= N, "%d of %d messages were consumed in time", done, N);
            }
            Thread.sleep(2000); // none comes once more
        }
        judge();
    }

    /** Wants each message once, and the one that failed twice. */
    private synchronized void judge() {
        expect(attempts.size() == N, "%d different messages, want %d", attempts.size(), N);
        attempts.forEach((i, got) -> {
            List<Integer> want = i.equals(FAILING) ? Arrays.asList(1, 2) : Collections.singletonList(1);
            expect(got.equals(want), "message %s came with attempts %s, want %s", i, got, want);
        });
        Lab.between("the failed message came again", Duration.ofNanos(times.get(1) - times.get(0)), 900, 6000);
    }
}
