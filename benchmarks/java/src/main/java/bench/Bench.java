package bench;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One Redisson client with its default configuration but for idle pings, driven by lines on stdin: one request, one answer.
 *
 * <pre>
 * load THREADS CALLS COUNT NAME   THREADS threads share CALLS calls of tryAcquire(), each on a random one of NAME0, NAME1, …;
 *                                 answers "granted rejected elapsedNanos p99Nanos"
 * wait THREADS STAGGER NAME       THREADS threads call acquire(), each begun STAGGER microseconds after the one before;
 *                                 answers the instant of each return, in order of arrival
 * try PERMITS NAME                tryAcquire(PERMITS); answers "true" or "false"
 * </pre>
 *
 * The greeting is "ready". An answer that begins with "!" is an error. The end of stdin ends the process.
 */
public final class Bench {

    private final RedissonClient client;
    private final AtomicReference<RuntimeException> failure = new AtomicReference<>();

    private Bench(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // nothing that a library prints may look like an answer
        Config config = new Config();
        config.useSingleServer().setAddress(args[0]).setPingConnectionInterval(0); // what idles is silent
        RedissonClient client = Redisson.create(config);
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(new Bench(client).answer(line.split(" ")));
            } catch (Exception e) {
                e.printStackTrace();
                out.println("!" + e);
            }
        }
        client.shutdown(0, 2, TimeUnit.SECONDS);
        System.exit(0);
    }

    private String answer(String[] words) throws InterruptedException {
        switch (words[0]) {
            case "load":
                return load(Integer.parseInt(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]);
            case "wait":
                return await(Integer.parseInt(words[1]), Long.parseLong(words[2]), client.getRateLimiter(words[3]));
            case "try":
                return String.valueOf(client.getRateLimiter(words[2]).tryAcquire(Long.parseLong(words[1])));
            default:
                throw new IllegalArgumentException("unknown request " + words[0]);
        }
    }

    private Thread start(Runnable work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (RuntimeException e) {
                failure.set(e);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void join(Thread[] threads) throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    private String load(int count, int calls, int size, String name) throws InterruptedException {
        RRateLimiter[] limiters = new RRateLimiter[size];
        for (int i = 0; i < size; i++) {
            limiters[i] = client.getRateLimiter(name + i);
        }
        AtomicLong granted = new AtomicLong();
        long[] nanos = new long[calls];
        CountDownLatch ready = new CountDownLatch(count);
        CountDownLatch begin = new CountDownLatch(1);
        Thread[] threads = new Thread[count];
        for (int i = 0; i < count; i++) {
            int from = (int) ((long) calls * i / count);
            int to = (int) ((long) calls * (i + 1) / count);
            threads[i] = start(() -> {
                ready.countDown();
                try {
                    begin.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                long mine = 0;
                long before = System.nanoTime();
                for (int at = from; at < to; at++) {
                    if (limiters[size == 1 ? 0 : ThreadLocalRandom.current().nextInt(size)].tryAcquire()) {
                        mine++;
                    }
                    long now = System.nanoTime();
                    nanos[at] = now - before;
                    before = now;
                }
                granted.addAndGet(mine);
            });
        }
        ready.await();
        long began = System.nanoTime();
        begin.countDown();
        join(threads);
        long elapsed = System.nanoTime() - began;
        Arrays.sort(nanos);
        long p99 = calls == 0 ? 0 : nanos[(int) Math.min(calls - 1L, calls * 99L / 100)];
        return granted + " " + (calls - granted.get()) + " " + elapsed + " " + p99;
    }

    private String await(int count, long stagger, RRateLimiter limiter) throws InterruptedException {
        long[] returned = new long[count];
        Thread[] threads = new Thread[count];
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            int at = i;
            threads[i] = start(() -> {
                limiter.acquire();
                returned[at] = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
            });
            long left;
            while ((left = began + (i + 1) * stagger * 1000 - System.nanoTime()) > 0) {
                LockSupport.parkNanos(left);
            }
        }
        join(threads);
        StringJoiner text = new StringJoiner(" ");
        for (long at : returned) {
            text.add(Long.toString(at));
        }
        return text.toString();
    }
}
