package interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the official Java client of Apache RocketMQ 5, unmodified, against a
 * server and tells which of the checks of ../README.md it passes.
 */
public final class Main {
    /** Ends a check that hangs. */
    private static final long CHECK_SECONDS_MAX = 55;

    private int passed;
    private int failed;
    private int skipped;

    /** A check throws what is wrong. */
    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String endpoints = "127.0.0.1:8081";
        String run = "1";
        boolean tls = true;
        boolean steady = false;
        for (int i = 0; i < args.length; i++) {
            switch (args[i]) {
                case "--endpoints":
                    endpoints = args[++i];
                    break;
                case "--run":
                    run = args[++i];
                    break;
                case "--tls=false":
                    tls = false;
                    break;
                case "--steady":
                    steady = true;
                    break;
                default:
                    System.err.println("usage: --endpoints HOST:PORT[,HOST:PORT] --run ID [--tls=false] [--steady]");
                    System.exit(2);
            }
        }
        String[] addresses = endpoints.split(",");
        if (steady) {
            try (Lab lab = new Lab(addresses[0], addresses[addresses.length - 1], run)) {
                new Steady(lab).run();
            } finally {
                Runtime.getRuntime().halt(0);
            }
        }
        Main main = new Main();
        try (Lab lab = new Lab(addresses[0], addresses[addresses.length - 1], run)) {
            main.all(lab, tls);
        } catch (Exception e) {
            main.report("FAIL start: " + e);
            main.failed++;
        }
        System.out.printf("%d passed, %d failed, %d skipped%n", main.passed, main.failed, main.skipped);
        System.out.flush();
        // Threads of clients that failed to close must not keep the process.
        Runtime.getRuntime().halt(main.failed > 0 ? 1 : 0);
    }

    private void all(Lab lab, boolean tls) throws InterruptedException {
        Receiving receiving = new Receiving(lab);
        Leases leases = new Leases(lab);
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("send-100", receiving::sendHundred);
        checks.put("tag-filter", receiving::tagFilter);
        checks.put("no-ack", leases::noAck);
        checks.put("change-invisible", leases::changeInvisible);
        checks.put("push-consume", new Push(lab)::consume);
        checks.put("long-poll-wake", receiving::longPollWake);
        checks.put("empty-poll", receiving::emptyPoll);
        checks.put("unknown-topic", receiving::unknownTopic);
        Order order = new Order(lab);
        Timing timing = new Timing(lab);
        Transactions transactions = new Transactions(lab);
        checks.put("fifo", order::fifo);
        checks.put("delay", timing::delay);
        checks.put("recall", timing::recall);
        checks.put("transaction-commit", transactions::commit);
        checks.put("transaction-rollback", transactions::rollback);
        checks.put("transaction-check", transactions::check);
        checks.put("transaction-restart", transactions::restart);
        checks.put("sql-filter", receiving::sqlFilter);
        checks.put("dead-letter", new DeadLetters(lab)::arrive);
        checks.put("lite", order::lite);
        checks.put("priority", order::priority);
        report("n/a  batch: the client lacks it: a send has one message");
        skipped++;
        if (tls) {
            checks.put("tls", receiving::tls);
        } else {
            report("n/a  tls: left out with --tls=false");
            skipped++;
        }
        Thread[] threads = new Thread[checks.size()];
        int i = 0;
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            threads[i] = new Thread(() -> one(check.getKey(), check.getValue()), check.getKey());
            threads[i++].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void one(String name, Check check) {
        long begin = System.nanoTime();
        FutureTask<Void> task = new FutureTask<>((Callable<Void>) () -> {
            check.run();
            return null;
        });
        Thread thread = new Thread(task, name + "-body");
        thread.setDaemon(true);
        thread.start();
        String why = null;
        try {
            task.get(CHECK_SECONDS_MAX, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            why = String.valueOf(e.getCause());
        } catch (TimeoutException e) {
            why = "no end after " + CHECK_SECONDS_MAX + " s";
        } catch (InterruptedException e) {
            why = "interrupted";
        }
        synchronized (this) {
            if (why != null) {
                failed++;
                report("FAIL " + name + ": " + why);
            } else {
                passed++;
                report("ok   " + name + " (" + (System.nanoTime() - begin) / 1_000_000 + " ms)");
            }
        }
    }

    private synchronized void report(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
