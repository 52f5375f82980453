package peer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

import org.redisson.api.RRateLimiter;

/**
 * Load from many threads of one client, which count the results themselves.
 *
 * <pre>
 * hammer NAME THREADS DURATION MIX MODE [PAUSE [THINK]]
 * </pre>
 *
 * MIX is a list such as 1,1,3: each call requests one of these at random. MODE is "try" for tryAcquire(n), "wait:MS"
 * for tryAcquire(n, MS) and "block" for acquire(n). PAUSE is the sleep in milliseconds after a rejection and after an
 * error, by default 1; THINK is the sleep after a grant, by default 0. A hammer ends after DURATION, and waits for the
 * calls that began before that.
 *
 * It replies {"Rejected": CALLS, "Errors": {TEXT: COUNT}, "Grants": [[T, N]]}: of each grant this JVM's clock after the
 * reply and the permits, in order of time.
 */
final class Load {

    private Load() {
    }

    record Plan(int threads, long duration, long[] mix, String mode, long pause, long think) {
        static Plan parse(String[] a) {
            return new Plan(Integer.parseInt(a[1]), Long.parseLong(a[2]),
                    Arrays.stream(a[3].split(",")).mapToLong(Long::parseLong).toArray(), a[4],
                    a.length > 5 ? Long.parseLong(a[5]) : 1, a.length > 6 ? Long.parseLong(a[6]) : 0);
        }

        boolean ask(RRateLimiter limiter, long permits) {
            if (mode.equals("block")) {
                limiter.acquire(permits);
                return true;
            }
            if (mode.startsWith("wait:")) {
                return limiter.tryAcquire(permits, Long.parseLong(mode.substring(5)), TimeUnit.MILLISECONDS);
            }
            if (mode.equals("try")) {
                return limiter.tryAcquire(permits);
            }
            throw new IllegalArgumentException("unknown mode " + mode);
        }
    }

    static String hammer(RRateLimiter limiter, Plan plan) throws InterruptedException {
        Tally[] tallies = new Tally[plan.threads];
        Thread[] threads = new Thread[plan.threads];
        CountDownLatch start = new CountDownLatch(1);
        long[] end = new long[1];
        for (int i = 0; i < plan.threads; i++) {
            Tally tally = tallies[i] = new Tally();
            threads[i] = new Thread(() -> {
                try {
                    start.await();
                    while (System.nanoTime() < end[0]) {
                        long permits = plan.mix[ThreadLocalRandom.current().nextInt(plan.mix.length)];
                        long sleep = tally.ask(limiter, plan, permits) ? plan.think : plan.pause;
                        if (sleep > 0) {
                            Thread.sleep(sleep);
                        }
                    }
                } catch (InterruptedException e) {
                    // the request was cancelled; what was granted until then counts
                }
            }, "load-" + i);
            threads[i].setDaemon(true);
            threads[i].start();
        }
        end[0] = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(plan.duration);
        start.countDown();
        try {
            for (Thread thread : threads) {
                thread.join();
            }
        } catch (InterruptedException e) {
            for (Thread thread : threads) {
                thread.interrupt();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        Tally total = new Tally();
        for (Tally tally : tallies) {
            total.add(tally);
        }
        return total.toString();
    }

    /** The results of one thread, used by that thread alone until it has ended. */
    private static final class Tally {
        private long rejected;
        private final List<long[]> grants = new ArrayList<>();
        private final Map<String, Long> errors = new TreeMap<>();

        boolean ask(RRateLimiter limiter, Plan plan, long n) throws InterruptedException {
            try {
                if (!plan.ask(limiter, n)) {
                    rejected++;
                    return false;
                }
                grants.add(new long[]{System.currentTimeMillis(), n});
                return true;
            } catch (RuntimeException e) {
                if (Thread.interrupted() || e.getCause() instanceof InterruptedException) {
                    throw new InterruptedException();
                }
                // The rest is the whole command, other arguments with every call.
                String message = String.valueOf(e.getMessage()).split(" channel: \\[")[0];
                errors.merge(e.getClass().getName() + " " + message, 1L, Long::sum);
                return false;
            }
        }

        void add(Tally other) {
            rejected += other.rejected;
            grants.addAll(other.grants);
            other.errors.forEach((text, count) -> errors.merge(text, count, Long::sum));
        }

        @Override
        public String toString() {
            grants.sort((a, b) -> Long.compare(a[0], b[0]));
            return "{\"Rejected\": " + rejected + ", \"Errors\": {"
                    + errors.entrySet().stream().map(e -> text(e.getKey()) + ": " + e.getValue()).collect(Collectors.joining(", "))
                    + "}, \"Grants\": [" + grants.stream().map(Arrays::toString).collect(Collectors.joining(", ")) + "]}";
        }

        private static String text(String plain) {
            return "\"" + plain.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + "\"";
        }
    }
}
