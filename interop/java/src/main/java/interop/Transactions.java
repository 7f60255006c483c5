package interop;

import static interop.Lab.INVISIBLE;
import static interop.Lab.attempt;
import static interop.Lab.between;
import static interop.Lab.bytes;
import static interop.Lab.expect;
import static interop.Lab.since;
import static interop.Lab.topic;

import java.time.Duration;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Checks of transactions: ended by their producer, or by a checker that the server asks. */
final class Transactions {
    private static final byte[] BODY = {1, 2, 3};

    private final Lab lab;

    Transactions(Lab lab) {
        this.lab = lab;
    }

    /** A producer of a check's topic, whose checker notes what it is asked. */
    private Producer producer(String endpoints, String check, TransactionResolution answer, Queue<MessageView> asked)
        throws ClientException {
        return lab.provider.newProducerBuilder()
            .setClientConfiguration(Lab.config(endpoints, false))
            .setTopics(topic(check))
            .setTransactionChecker(view -> {
                if (!lab.run.equals(view.getProperties().get("run"))) {
                    return TransactionResolution.ROLLBACK;
                }
                asked.add(view);
                return answer;
            })
            .build();
    }

    private Transaction begin(Producer producer, String check, String i) throws ClientException {
        Transaction transaction = producer.beginTransaction();
        producer.send(lab.message(check, i, BODY).setTag("tag").setKeys("key-" + i).build(), transaction);
        return transaction;
    }

    /** Takes one message, and wants it to be message i as it was sent. */
    private void arrives(SimpleConsumer consumer, String i) throws ClientException {
        MessageView view = lab.take(consumer, 1, INVISIBLE, Duration.ofSeconds(20)).get(0);
        same(view, i);
        attempt(view, 1);
        consumer.ack(view);
    }

    private static void same(MessageView view, String i) {
        expect(i.equals(view.getProperties().get("i")), "message %s, want %s", view.getProperties().get("i"), i);
        expect(Arrays.equals(bytes(view), BODY), "message %s has another body", i);
        expect(view.getTag().orElse("").equals("tag"), "message %s: tag %s, want tag", i, view.getTag());
        expect(view.getKeys().contains("key-" + i), "message %s: keys %s", i, view.getKeys());
    }

    /** The message of the transaction that was begun first comes after its commit, which is the second. */
    void commit() throws Exception {
        Queue<MessageView> asked = new ConcurrentLinkedQueue<>();
        try (SimpleConsumer consumer = lab.consumer("commit", "*");
            Producer producer = producer(lab.producing, "commit", TransactionResolution.UNKNOWN, asked)) {
            Transaction transaction = begin(producer, "commit", "first");
            begin(producer, "commit", "second").commit();
            arrives(consumer, "second");
            transaction.commit();
            arrives(consumer, "first");
            lab.quiet(consumer, Duration.ofSeconds(8)); // also past the time of a check
            expect(asked.isEmpty(), "the checker was asked for an ended transaction");
        }
    }

    void rollback() throws Exception {
        Queue<MessageView> asked = new ConcurrentLinkedQueue<>();
        try (SimpleConsumer consumer = lab.consumer("rollback", "*");
            Producer producer = producer(lab.producing, "rollback", TransactionResolution.COMMIT, asked)) {
            begin(producer, "rollback", "rolled back").rollback();
            begin(producer, "rollback", "committed").commit();
            arrives(consumer, "committed");
            lab.quiet(consumer, Duration.ofSeconds(8)); // also past the time of a check
            expect(asked.isEmpty(), "the checker was asked for an ended transaction");
        }
    }

    /** Leaves a transaction open: the checker that the server asks commits it. */
    void check() throws Exception {
        Queue<MessageView> asked = new ConcurrentLinkedQueue<>();
        try (SimpleConsumer consumer = lab.consumer("check", "*");
            Producer producer = producer(lab.producing, "check", TransactionResolution.COMMIT, asked)) {
            long begin = System.nanoTime();
            begin(producer, "check", "open");
            arrives(consumer, "open");
            between("the message came", since(begin), 4000, 15_000);
            once(asked, "open");
            lab.quiet(consumer, Duration.ofSeconds(3));
        }
    }

    /** Closes the producer with a transaction open: another one of the topic, at the other proxy, is asked. */
    void restart() throws Exception {
        Queue<MessageView> first = new ConcurrentLinkedQueue<>();
        Queue<MessageView> second = new ConcurrentLinkedQueue<>();
        try (SimpleConsumer consumer = lab.consumer("restart", "*")) {
            try (Producer producer = producer(lab.producing, "restart", TransactionResolution.ROLLBACK, first)) {
                begin(producer, "restart", "left");
            }
            try (Producer producer = producer(lab.consuming, "restart", TransactionResolution.COMMIT, second)) {
                arrives(consumer, "left");
            }
            expect(first.isEmpty(), "the closed producer was asked");
            once(second, "left");
            lab.quiet(consumer, Duration.ofSeconds(3));
        }
    }

    private static void once(Queue<MessageView> asked, String i) {
        expect(asked.size() == 1, "the checker was asked %d times, want once", asked.size());
        same(asked.peek(), i);
    }
}
