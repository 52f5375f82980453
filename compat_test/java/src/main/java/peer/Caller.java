package peer;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

import org.redisson.api.RRateLimiter;

/**
 * Calls an HTTP API as a Java service would that knows the limiters and nothing else: it acquires the permits, and then
 * it calls. It ignores the content of the platform's responses.
 *
 * <pre>
 * callAPI URL THREADS DURATION PAUSE NAME [NAME...]
 * </pre>
 *
 * Each thread waits for a permit of the first limiter, and tries the others without waiting. If one of them rejects,
 * the permits already acquired are wasted, and the thread begins again after 50 ms, so that no permit is used long
 * after it was granted. Otherwise the thread posts to URL, with the header X-Dinggate-Caller "java" and, in X-Sent, the
 * clock in nanoseconds just before. It reads the response and sleeps PAUSE milliseconds. After an exception it sleeps
 * 50 ms. It begins no round after DURATION, or when it is cancelled; an acquire that lasts longer is interrupted.
 *
 * It replies "calls=N", "wasted=N" for rounds that another limiter ended, and "error=COUNT*CLASS" for exceptions.
 */
final class Caller {

    private static final long AGAIN = 50;

    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofMinutes(1)).build();
    private final URI uri;
    private final long pause;
    private final List<RRateLimiter> limiters;
    private final LongAdder calls = new LongAdder();
    private final LongAdder wasted = new LongAdder();
    private final Map<String, LongAdder> errors = new ConcurrentHashMap<>();

    Caller(String uri, long pause, List<RRateLimiter> limiters) {
        this.uri = URI.create(uri);
        this.pause = pause;
        this.limiters = limiters;
    }

    String run(int threads, long duration) throws InterruptedException {
        warm();
        long end = System.nanoTime() + Duration.ofMillis(duration).toNanos();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> rounds(end), "caller-" + i);
            all[i].setDaemon(true);
            all[i].start();
        }
        try {
            Thread.sleep(duration);
        } catch (InterruptedException e) {
            // cancelled: the time is up
        } finally {
            for (Thread thread : all) {
                thread.interrupt();
            }
        }
        for (Thread thread : all) {
            thread.join();
        }
        StringBuilder text = new StringBuilder("calls=" + calls + " wasted=" + wasted);
        errors.forEach((name, count) -> text.append(" error=").append(count).append('*').append(name));
        return text.toString();
    }

    /** Makes first requests, which are slow in a new JVM: a service that has been up for a while has made its own. */
    private void warm() throws InterruptedException {
        HttpRequest look = HttpRequest.newBuilder(uri.resolve("/dinggate/ledger")).build();
        for (int i = 0; i < 20; i++) {
            try {
                http.send(look, HttpResponse.BodyHandlers.ofString());
            } catch (IOException e) {
                count(e);
            }
        }
    }

    private void rounds(long end) {
        try {
            while (System.nanoTime() < end) {
                try {
                    Thread.sleep(round() ? pause : AGAIN);
                } catch (IOException | RuntimeException e) {
                    if (Thread.interrupted() || e.getCause() instanceof InterruptedException) {
                        return;
                    }
                    count(e);
                    Thread.sleep(AGAIN);
                }
            }
        } catch (InterruptedException e) {
            // the time is up
        }
    }

    private boolean round() throws IOException, InterruptedException {
        limiters.get(0).acquire(1);
        for (RRateLimiter other : limiters.subList(1, limiters.size())) {
            if (!other.tryAcquire(1)) {
                wasted.increment();
                return false;
            }
        }
        http.send(HttpRequest.newBuilder(uri).timeout(Duration.ofMinutes(1))
                .header("Content-Type", "application/json").header("X-Dinggate-Caller", "java")
                .header("X-Sent", String.valueOf(now()))
                .POST(HttpRequest.BodyPublishers.ofString("{}")).build(), HttpResponse.BodyHandlers.ofString());
        calls.increment();
        return true;
    }

    private static long now() {
        java.time.Instant t = java.time.Instant.now();
        return t.getEpochSecond() * 1_000_000_000L + t.getNano();
    }

    private void count(Exception e) {
        errors.computeIfAbsent(e.getClass().getSimpleName(), name -> new LongAdder()).increment();
    }
}
