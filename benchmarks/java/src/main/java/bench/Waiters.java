package bench;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

import org.redisson.api.RRateLimiter;

/** Threads that wait in acquire(), begun one after another. */
final class Waiters {

    private Waiters() {
    }

    static String run(RRateLimiter limiter, int count, long stagger) throws InterruptedException {
        long[] returned = new long[count];
        Thread[] threads = new Thread[count];
        AtomicReference<RuntimeException> failure = new AtomicReference<>();
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            int at = i;
            threads[i] = new Thread(() -> {
                try {
                    limiter.acquire();
                } catch (RuntimeException e) {
                    failure.set(e);
                }
                returned[at] = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
            });
            threads[i].setDaemon(true);
            threads[i].start();
            long left;
            while ((left = began + (i + 1) * stagger * 1000 - System.nanoTime()) > 0) {
                LockSupport.parkNanos(left);
            }
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        StringJoiner text = new StringJoiner(" ");
        for (long at : returned) {
            text.add(Long.toString(at));
        }
        return text.toString();
    }
}
