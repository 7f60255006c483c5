package interop;

import static interop.Lab.INVISIBLE;
import static interop.Lab.attempt;
import static interop.Lab.expect;
import static interop.Lab.since;
import static interop.Lab.topic;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** Checks of messages with a delivery time. */
final class Timing {
    private final Lab lab;

    Timing(Lab lab) {
        this.lab = lab;
    }

    private SendReceipt delayed(String check, String i, long due) throws ClientException {
        return lab.producer.send(lab.message(check, i, new byte[] {1}).setDeliveryTimestamp(due).build());
    }

    void delay() throws Exception {
        // Not while the other checks are at their busiest.
        Thread.sleep(6000);
        int n = 5;
        try (SimpleConsumer consumer = lab.consumer("delay", "*")) {
            for (int i = 0; i < n; i++) {
                long due = System.currentTimeMillis() + 3000 + 200 * i;
                delayed("delay", String.valueOf(due), due);
            }
            List<Long> late = new ArrayList<>();
            List<MessageView> came = new ArrayList<>();
            for (long begin = System.nanoTime(); came.size() < n; ) {
                expect(since(begin).toSeconds() < 15, "%d of %d messages came in time", came.size(), n);
                List<MessageView> views = lab.poll(consumer, INVISIBLE);
                long now = System.currentTimeMillis();
                for (MessageView view : views) {
                    long due = Long.parseLong(view.getProperties().get("i"));
                    attempt(view, 1);
                    expect(view.getDeliveryTimestamp().orElse(0L) == due, "delivery time %s, want %d", view.getDeliveryTimestamp(), due);
                    expect(now >= due, "a message came %d ms before its time", due - now);
                    late.add(now - due);
                    came.add(view);
                }
            }
            for (MessageView view : came) {
                consumer.ack(view);
            }
            Collections.sort(late);
            expect(late.get(n / 2) <= 1000, "messages came %s ms late, want half within 1000", late);
        }
    }

    void recall() throws Exception {
        try (SimpleConsumer consumer = lab.consumer("recall", "*")) {
            SendReceipt recalled = delayed("recall", "recalled", System.currentTimeMillis() + 6000);
            SendReceipt early = delayed("recall", "early", System.currentTimeMillis() + 2500);
            delayed("recall", "late", System.currentTimeMillis() + 7000);
            RecallReceipt receipt = lab.producer.recallMessage(topic("recall"), recalled.getRecallHandle());
            expect(receipt.getMessageId().toString().equals(recalled.getMessageId().toString()),
                "recalled id %s, want %s", receipt.getMessageId(), recalled.getMessageId());
            for (String want : new String[] {"early", "late"}) {
                MessageView view = lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(15)).get(0);
                String got = view.getProperties().get("i");
                expect(got.equals(want), "the message %s came, want %s", got, want);
                consumer.ack(view);
            }
            late(early);
            lab.quiet(consumer, Duration.ofSeconds(3));
        }
    }

    /** Recalls a message that was delivered. */
    private void late(SendReceipt sent) {
        try {
            lab.producer.recallMessage(topic("recall"), sent.getRecallHandle());
        } catch (ClientException e) {
            return;
        }
        throw new IllegalStateException("to recall a message that was delivered is no error");
    }
}
