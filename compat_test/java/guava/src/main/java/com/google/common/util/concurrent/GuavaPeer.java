package com.google.common.util.concurrent;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

/**
 * Plays requests to Guava's RateLimiter in virtual time: each line on stdin is a request, and each line on stdout its
 * reply. It is in Guava's package because the stopwatch, the constructors and reserve are private to that package.
 *
 * <pre>
 * greeting   guava VERSION
 * defaults                               what RateLimiter.create chooses
 *   MAX-BURST COLD-FACTOR
 * bursty RATE MAX-BURST                  a new SmoothBursty, its stopwatch at 0; MAX-BURST in seconds
 * warmingUp RATE WARMUP COLD-FACTOR      a new SmoothWarmingUp, its stopwatch at 0
 *   made
 * GAP acquire N                          GAP passes; then acquire(N), and the caller's sleep passes as well
 * GAP tryAcquire N TIMEOUT               the same with tryAcquire(N, TIMEOUT)
 * GAP reserve N                          GAP passes; then reserve(N), which is acquire without its sleep
 * GAP tryReserve N TIMEOUT               as tryAcquire, but its sleep passes in a thread of its own
 *   granted WAIT                         WAIT is the sleep
 *   granted WAIT SECONDS                 of acquire, SECONDS being what it returned
 *   rejected SHORT                        SHORT is by how much TIMEOUT was too short
 * </pre>
 *
 * RATE is in permits a second; durations are in µs unless noted. An exception ends the process with code 1.
 */
public final class GuavaPeer {

    /** A clock whose time passes when it is told to, and while a caller sleeps. */
    private static final class VirtualStopwatch extends RateLimiter.SleepingStopwatch {
        private long now;
        private long slept;
        private boolean beside; // sleeps pass in another thread

        @Override
        protected long readMicros() {
            return now;
        }

        @Override
        protected void sleepMicrosUninterruptibly(long micros) {
            slept = micros;
            if (!beside) {
                now += micros;
            }
        }
    }

    private VirtualStopwatch stopwatch;
    private RateLimiter limiter;

    private GuavaPeer() {
    }

    public static void main(String[] args) throws IOException, ReflectiveOperationException {
        PrintWriter out = new PrintWriter(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        GuavaPeer peer = new GuavaPeer();
        out.println("guava " + version());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(peer.answer(line.split(" ")));
        }
        out.flush();
    }

    private String answer(String[] a) throws ReflectiveOperationException {
        return switch (a[0]) {
            case "defaults" -> defaults();
            case "bursty" -> {
                stopwatch = new VirtualStopwatch();
                yield made(new SmoothRateLimiter.SmoothBursty(stopwatch, Double.parseDouble(a[2])), a[1]);
            }
            case "warmingUp" -> {
                stopwatch = new VirtualStopwatch();
                yield made(new SmoothRateLimiter.SmoothWarmingUp(stopwatch, Long.parseLong(a[2]), TimeUnit.MICROSECONDS,
                        Double.parseDouble(a[3])), a[1]);
            }
            default -> {
                stopwatch.now += Long.parseLong(a[0]);
                yield ask(a[1], Integer.parseInt(a[2]), a.length > 3 ? Long.parseLong(a[3]) : 0);
            }
        };
    }

    /** Takes a new limiter into use and sets its rate, as RateLimiter.create does. */
    private String made(RateLimiter made, String rate) {
        limiter = made;
        limiter.setRate(Double.parseDouble(rate));
        return "made";
    }

    private String ask(String call, int permits, long timeout) {
        long begin = stopwatch.now;
        stopwatch.slept = -1;
        stopwatch.beside = call.equals("tryReserve");
        switch (call) {
            case "acquire" -> {
                double seconds = limiter.acquire(permits);
                return "granted " + stopwatch.slept + " " + seconds;
            }
            case "reserve" -> {
                return "granted " + limiter.reserve(permits);
            }
            case "tryAcquire", "tryReserve" -> {
                return limiter.tryAcquire(permits, timeout, TimeUnit.MICROSECONDS) ? "granted " + stopwatch.slept
                        : "rejected " + (limiter.queryEarliestAvailable(begin) - begin - Math.max(timeout, 0));
            }
            default -> throw new IllegalArgumentException(call);
        }
    }

    private static String defaults() throws ReflectiveOperationException {
        RateLimiter bursty = RateLimiter.create(1);
        RateLimiter warmingUp = RateLimiter.create(1, 1, TimeUnit.SECONDS);
        Field coldFactor = SmoothRateLimiter.SmoothWarmingUp.class.getDeclaredField("coldFactor");
        coldFactor.setAccessible(true);
        return ((SmoothRateLimiter.SmoothBursty) bursty).maxBurstSeconds + " " + coldFactor.getDouble(warmingUp);
    }

    private static String version() throws IOException {
        try (InputStream in = RateLimiter.class
                .getResourceAsStream("/META-INF/maven/com.google.guava/guava/pom.properties")) {
            Properties properties = new Properties();
            properties.load(in);
            return properties.getProperty("version");
        }
    }
}
