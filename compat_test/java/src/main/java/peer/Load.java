package peer;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RRateLimiter;

/**
 * Load from many threads of one client, which count the results themselves.
 *
 * <pre>
 * burst NAME THREADS CALLS N             THREADS threads call tryAcquire(N) CALLS times each, all started together
 * hammer NAME THREADS DURATION MIX MODE [PAUSE [THINK]]
 * </pre>
 *
 * MIX is a list such as 1,1,3: each call requests one of these at random. MODE is "try" for tryAcquire(n), "wait:MS"
 * for tryAcquire(n, MS) and "block" for acquire(n). PAUSE is the sleep in milliseconds after a rejection and after an
 * error, by default 1; THINK is the sleep after a grant, by default 0. A hammer ends after DURATION, and waits for the
 * calls that began before that.
 *
 * Both reply "granted=CALLS permits=SUM rejected=CALLS errors=CALLS elapsed=MS", then "error=COUNT*TEXT" for every
 * kind of error, spaces in TEXT written "_", then for a hammer "grants=T/N,T/N,…": this JVM's clock after the reply
 * and the permits granted, in order of time, or "grants=" if there were none.
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

    static String burst(RRateLimiter limiter, int threads, int calls, long permits) throws InterruptedException {
        Plan plan = new Plan(threads, 0, new long[]{permits}, "try", 0, 0);
        return run(plan, (tally, end) -> {
            for (int i = 0; i < calls; i++) {
                tally.ask(limiter, plan, permits);
            }
        }).toString();
    }

    static String hammer(RRateLimiter limiter, Plan plan) throws InterruptedException {
        Tally total = run(plan, (tally, end) -> {
            while (System.nanoTime() < end) {
                long permits = plan.mix[ThreadLocalRandom.current().nextInt(plan.mix.length)];
                long sleep = tally.ask(limiter, plan, permits) ? plan.think : plan.pause;
                if (sleep > 0) {
                    Thread.sleep(sleep);
                }
            }
        });
        return total + " grants=" + total.grants();
    }

    private interface Body {
        void run(Tally tally, long end) throws InterruptedException;
    }

    private static Tally run(Plan plan, Body body) throws InterruptedException {
        Tally[] tallies = new Tally[plan.threads];
        Thread[] threads = new Thread[plan.threads];
        CountDownLatch start = new CountDownLatch(1);
        long[] end = new long[1];
        for (int i = 0; i < plan.threads; i++) {
            Tally tally = tallies[i] = new Tally();
            threads[i] = new Thread(() -> {
                try {
                    start.await();
                    body.run(tally, end[0]);
                } catch (InterruptedException e) {
                    // the request was cancelled; what was granted until then counts
                }
            }, "load-" + i);
            threads[i].setDaemon(true);
            threads[i].start();
        }
        long began = System.nanoTime();
        end[0] = began + TimeUnit.MILLISECONDS.toNanos(plan.duration);
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
        total.elapsed = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
        return total;
    }

    /** The results of one thread, used by that thread alone until it has ended. */
    private static final class Tally {
        private long granted;
        private long permits;
        private long rejected;
        private long elapsed;
        private long[][] grants = new long[64][];
        private int size;
        private final Map<String, Long> errors = new TreeMap<>();

        boolean ask(RRateLimiter limiter, Plan plan, long n) throws InterruptedException {
            try {
                if (!plan.ask(limiter, n)) {
                    rejected++;
                    return false;
                }
                granted++;
                permits += n;
                push(new long[]{System.currentTimeMillis(), n});
                return true;
            } catch (RuntimeException e) {
                if (Thread.interrupted() || e.getCause() instanceof InterruptedException) {
                    throw new InterruptedException();
                }
                errors.merge((e.getClass().getName() + " " + e.getMessage()).replaceAll("\\s", "_"), 1L, Long::sum);
                return false;
            }
        }

        private void push(long[] grant) {
            if (size == grants.length) {
                grants = Arrays.copyOf(grants, 2 * size);
            }
            grants[size++] = grant;
        }

        void add(Tally other) {
            granted += other.granted;
            permits += other.permits;
            rejected += other.rejected;
            for (int i = 0; i < other.size; i++) {
                push(other.grants[i]);
            }
            other.errors.forEach((text, count) -> errors.merge(text, count, Long::sum));
        }

        String grants() {
            long[][] sorted = Arrays.copyOf(grants, size);
            Arrays.sort(sorted, (a, b) -> Long.compare(a[0], b[0]));
            StringBuilder list = new StringBuilder();
            for (long[] grant : sorted) {
                list.append(list.isEmpty() ? "" : ",").append(grant[0]).append('/').append(grant[1]);
            }
            return list.toString();
        }

        @Override
        public String toString() {
            StringBuilder text = new StringBuilder("granted=" + granted + " permits=" + permits + " rejected=" + rejected
                    + " errors=" + errors.values().stream().mapToLong(Long::longValue).sum() + " elapsed=" + elapsed);
            errors.forEach((error, count) -> text.append(" error=").append(count).append('*').append(error));
            return text.toString();
        }
    }
}
