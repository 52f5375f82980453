package bench;

import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/** Threads that call tryAcquire() again and again, each call timed. */
final class Load {

    private final RRateLimiter[] limiters;
    private final long millis;
    private final long calls;
    private final Caller[] callers;

    Load(RedissonClient client, String[] words) {
        callers = new Caller[Integer.parseInt(words[1])];
        millis = Long.parseLong(words[2]);
        calls = Long.parseLong(words[3]);
        limiters = new RRateLimiter[Integer.parseInt(words[4])];
        for (int i = 0; i < limiters.length; i++) {
            limiters[i] = client.getRateLimiter(limiters.length == 1 ? words[5] : words[5] + i);
        }
    }

    String run() throws InterruptedException {
        CountDownLatch ready = new CountDownLatch(callers.length);
        CountDownLatch start = new CountDownLatch(1);
        for (int i = 0; i < callers.length; i++) {
            callers[i] = new Caller(ready, start);
            callers[i].setDaemon(true);
            callers[i].start();
        }
        ready.await();
        long began = System.nanoTime();
        start.countDown();
        for (Caller caller : callers) {
            caller.join();
        }
        long elapsed = System.nanoTime() - began;

        long granted = 0;
        long rejected = 0;
        long failed = 0;
        int size = 0;
        String error = "";
        for (Caller caller : callers) {
            granted += caller.granted;
            rejected += caller.rejected;
            failed += caller.failed;
            size += caller.size;
            if (caller.error != null) {
                error = caller.error.toString().replaceAll("\\s", "_");
            }
        }
        long[] all = new long[size];
        int at = 0;
        for (Caller caller : callers) {
            System.arraycopy(caller.nanos, 0, all, at, caller.size);
            at += caller.size;
        }
        Arrays.sort(all);
        return granted + " " + rejected + " " + failed + " " + elapsed + " " + quantile(all, 50) + " " + quantile(all, 99)
                + " " + error;
    }

    private static long quantile(long[] sorted, int percent) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1L, sorted.length * (long) percent / 100)];
    }

    private final class Caller extends Thread {
        private final CountDownLatch ready;
        private final CountDownLatch start;
        private long granted;
        private long rejected;
        private long failed;
        private long[] nanos = new long[1024];
        private int size;
        private RuntimeException error;

        Caller(CountDownLatch ready, CountDownLatch start) {
            this.ready = ready;
            this.start = start;
        }

        @Override
        public void run() {
            ready.countDown();
            try {
                start.await();
            } catch (InterruptedException e) {
                return;
            }
            long before = System.nanoTime();
            long end = before + TimeUnit.MILLISECONDS.toNanos(millis);
            for (long n = 0; calls == 0 ? before < end : n < calls; n++) {
                try {
                    if (limiters[limiters.length == 1 ? 0 : ThreadLocalRandom.current().nextInt(limiters.length)].tryAcquire()) {
                        granted++;
                    } else {
                        rejected++;
                    }
                } catch (RuntimeException e) {
                    failed++;
                    error = e;
                }
                long now = System.nanoTime();
                if (size == nanos.length) {
                    nanos = Arrays.copyOf(nanos, 2 * size);
                }
                nanos[size++] = now - before;
                before = now;
            }
        }
    }
}
