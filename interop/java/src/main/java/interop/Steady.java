package interop;

import static interop.Lab.topic;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Sends and receives until it is told to end, and prints what an application sees: ../README.md. */
final class Steady {
    private static final long PAUSE_MILLIS = 50; // between two sends

    private final Lab lab;
    private final CountDownLatch stopped = new CountDownLatch(1); // nothing more is to be sent
    private final CountDownLatch ended = new CountDownLatch(1);

    Steady(Lab lab) {
        this.lab = lab;
    }

    /** A part of the load. */
    interface Part {
        void run() throws Exception;
    }

    void run() throws Exception {
        SimpleConsumer simple = lab.consumer("steady", "*");
        SimpleConsumer order = lab.consumer("steadyfifo", "*");
        try (PushConsumer push = lab.provider.newPushConsumerBuilder()
            .setClientConfiguration(Lab.config(lab.consuming, false))
            .setConsumerGroup(lab.group("steadypush"))
            .setSubscriptionExpressions(Collections.singletonMap(topic("steady"), FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                say("got", "push", view.getProperties().get("i"), String.valueOf(view.getDeliveryAttempt()));
                return ConsumeResult.SUCCESS;
            })
            .build()) {
            Thread[] senders = {
                start(() -> send("n", topic("steady"), null)), start(() -> send("f", topic("steadyfifo"), "one")),
            };
            Thread[] receivers = {start(() -> receive("simple", simple)), start(() -> receive("fifo", order))};
            say("ready");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            in.readLine();
            stopped.countDown();
            for (Thread thread : senders) {
                thread.join();
            }
            say("produced");
            while (in.readLine() != null) { // until its end
            }
            ended.countDown();
            for (Thread thread : receivers) {
                thread.join();
            }
        }
    }

    private Thread start(Part part) {
        Thread thread = new Thread(() -> {
            try {
                part.run();
            } catch (Exception e) {
                say("broken", String.valueOf(e));
            }
        });
        thread.start();
        return thread;
    }

    /** Prints an event: milliseconds, and words. */
    private synchronized void say(String... words) {
        StringBuilder line = new StringBuilder(String.valueOf(System.currentTimeMillis()));
        for (String word : words) {
            line.append('\t').append(word.replace('\t', ' ').replace('\n', ' '));
        }
        System.out.println(line);
        System.out.flush();
    }

    private void send(String prefix, String topic, String group) throws InterruptedException {
        for (int i = 0; !stopped.await(PAUSE_MILLIS, TimeUnit.MILLISECONDS); i++) {
            String key = prefix + i;
            MessageBuilder message = lab.provider.newMessageBuilder().setTopic(topic)
                .setBody(key.getBytes(StandardCharsets.UTF_8)).addProperty("i", key);
            if (group != null) {
                message.setMessageGroup(group);
            }
            try {
                lab.producer.send(message.build());
            } catch (Exception e) {
                say("unsent", key, String.valueOf(e));
                continue;
            }
            say("sent", key);
        }
    }

    private void receive(String name, SimpleConsumer consumer) throws InterruptedException {
        while (ended.getCount() > 0) {
            try {
                for (MessageView view : consumer.receive(Lab.BATCH, Lab.INVISIBLE)) {
                    finish(name, consumer, view);
                }
            } catch (Exception e) {
                say("unreceived", name, String.valueOf(e));
                Thread.sleep(PAUSE_MILLIS);
            }
        }
    }

    private void finish(String name, SimpleConsumer consumer, MessageView view) {
        String key = view.getProperties().get("i");
        say("got", name, key, String.valueOf(view.getDeliveryAttempt()));
        try {
            consumer.ack(view);
        } catch (Exception e) {
            say("unacked", name, key, String.valueOf(e));
            return;
        }
        say("acked", name, key);
    }
}
