package interop;

import static interop.Lab.INVISIBLE;
import static interop.Lab.attempt;
import static interop.Lab.between;
import static interop.Lab.expect;
import static interop.Lab.since;

import java.time.Duration;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/** Checks of how long a received message stays away. */
final class Leases {
    private final Lab lab;

    Leases(Lab lab) {
        this.lab = lab;
    }

    void noAck() throws Exception {
        try (SimpleConsumer consumer = lab.consumer("noack", "*")) {
            long sent = System.nanoTime(); // the lease begins later
            String id = lab.send(lab.message("noack", "1", new byte[] {1}).build());
            attempt(lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(20)).get(0), 1);
            long first = System.nanoTime();
            MessageView again = lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(20)).get(0);
            between("the message came again", since(sent), 10_000, 30_000);
            between("the message came again", since(first), 0, 13_000);
            expect(again.getMessageId().toString().equals(id), "id %s, want %s", again.getMessageId(), id);
            attempt(again, 2);
            consumer.ack(again);
        }
    }

    /**
     * Prolongs three leases. One message is acknowledged with the handle from
     * before, one with that from after, and one not at all: it proves that the
     * change had an effect.
     */
    void changeInvisible() throws Exception {
        Duration longer = Duration.ofSeconds(15);
        try (SimpleConsumer consumer = lab.consumer("change", "*")) {
            for (String name : new String[] {"old", "new", "none"}) {
                lab.send(lab.message("change", name, new byte[] {1}).build());
            }
            long changed = 0;
            for (MessageView view : lab.take(consumer, 3, INVISIBLE, Duration.ofSeconds(10))) {
                MessageViewImpl impl = (MessageViewImpl) view;
                String before = impl.getReceiptHandle();
                long asked = System.nanoTime();
                consumer.changeInvisibleDuration(view, longer);
                expect(!impl.getReceiptHandle().isEmpty(), "no receipt handle in the answer");
                switch (view.getProperties().get("i")) {
                    case "none":
                        changed = asked;
                        continue;
                    case "old":
                        impl.setReceiptHandle(before);
                        break;
                    default:
                }
                consumer.ack(view);
            }
            MessageView again = lab.take(consumer, 1, INVISIBLE, longer.plusSeconds(4)).get(0);
            String name = again.getProperties().get("i");
            expect(name.equals("none"), "the message acknowledged with the %s handle came again", name);
            between("the message came again", since(changed), 15_000, 18_000);
            attempt(again, 2);
            consumer.ack(again);
            lab.quiet(consumer, Duration.ofSeconds(3));
        }
    }
}
