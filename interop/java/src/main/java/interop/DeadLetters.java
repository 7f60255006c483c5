package interop;

import static interop.Lab.INVISIBLE;
import static interop.Lab.bytes;
import static interop.Lab.expect;
import static interop.Lab.topic;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** The check of a message that always fails: it ends in the dead letters of its group. */
final class DeadLetters {
    private static final byte[] BODY = {4, 5, 6};

    private final Lab lab;

    DeadLetters(Lab lab) {
        this.lab = lab;
    }

    void arrive() throws Exception {
        BlockingQueue<Integer> attempts = new LinkedBlockingQueue<>();
        String id;
        try (PushConsumer consumer = lab.provider.newPushConsumerBuilder()
            .setClientConfiguration(Lab.config(lab.consuming, false))
            .setConsumerGroup(lab.group("dead"))
            .setSubscriptionExpressions(Collections.singletonMap(topic("dead"), FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                if (!lab.run.equals(view.getProperties().get("run"))) {
                    return ConsumeResult.SUCCESS;
                }
                attempts.add(view.getDeliveryAttempt());
                return ConsumeResult.FAILURE;
            })
            .build()) {
            id = lab.send(lab.message("dead", "1", BODY).setTag("tag").setKeys("key").addProperty("order", "7").build());
            for (int want = 1; want <= 2; want++) {
                Integer got = attempts.poll(20, TimeUnit.SECONDS);
                expect(got != null && got == want, "attempt %s, want %d", got, want);
            }
            Thread.sleep(3000); // no third attempt
        }
        expect(attempts.isEmpty(), "attempts %s came after the last one", attempts);
        String dead = "%DLQ%" + lab.group("dead");
        try (SimpleConsumer consumer = lab.provider.newSimpleConsumerBuilder()
            .setClientConfiguration(Lab.config(lab.consuming, false))
            .setConsumerGroup(lab.group("deadread"))
            .setAwaitDuration(Lab.AWAIT)
            .setSubscriptionExpressions(Collections.singletonMap(dead, FilterExpression.SUB_ALL))
            .build()) {
            List<MessageView> views = lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(15));
            MessageView view = views.get(0);
            expect(view.getMessageId().toString().equals(id), "dead letter %s, want %s", view.getMessageId(), id);
            expect(view.getTopic().equals(dead), "topic %s, want %s", view.getTopic(), dead);
            expect(Arrays.equals(bytes(view), BODY), "the dead letter has another body");
            expect(view.getTag().orElse("").equals("tag") && view.getKeys().contains("key"), "tag %s, keys %s", view.getTag(), view.getKeys());
            expect("7".equals(view.getProperties().get("order")), "properties %s", view.getProperties());
            consumer.ack(view);
            lab.quiet(consumer, Duration.ofSeconds(1));
        }
    }
}
