package peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RRateLimiter;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateLimiterConfig;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;

/**
 * The operations of {@link Peer}: those of Redisson's limiter, and a few of the peer itself. NAME is a limiter's name,
 * TYPE is OVERALL or PER_CLIENT, every duration and instant is a number of milliseconds.
 *
 * <pre>
 * trySetRate NAME TYPE RATE INTERVAL [KEEPALIVE]      setRate NAME TYPE RATE INTERVAL [KEEPALIVE]
 * setRateArgs NAME TYPE RATE INTERVAL KEEPALIVE KEEPSTATE    KEEPALIVE "-": not set, KEEPSTATE true or false
 * updateRate  NAME TYPE RATE INTERVAL KEEPALIVE KEEPSTATE
 * getConfig NAME            "TYPE RATE INTERVAL"
 * tryAcquire NAME N [TIMEOUT]      tryAcquireDuration NAME N TIMEOUT      acquire NAME N
 * tryAcquireAsync NAME N [TIMEOUT] acquireAsync NAME N          the peer waits; "cancel" cancels the future
 * availablePermits NAME     release NAME N
 * expire NAME TTL           expireAt NAME INSTANT
 * expireIfSet / expireIfNotSet / expireIfGreater / expireIfLess NAME TTL
 * expireAtIfSet / expireAtIfNotSet / expireAtIfGreater / expireAtIfLess NAME INSTANT
 * clearExpire NAME          remainTimeToLive NAME     getExpireTime NAME
 * isExists NAME             delete NAME               getName NAME
 *
 * id      the client's id              currentTimeMillis   this JVM's clock
 * operations    the names above that this version of Redisson has, sorted, separated by spaces; among them
 *               "keepAliveTime" when trySetRate and setRate take KEEPALIVE
 * hammer see {@link Load}              callAPI see {@link Caller}
 * </pre>
 *
 * An operation that the version lacks throws java.lang.UnsupportedOperationException. Methods that 3.13.4 has are called
 * directly, and all others by reflection, since the peer is compiled against 3.13.4.
 */
final class Operations {

    private static final String ARGS = "org.redisson.api.ratelimiter.RateLimiterArgs";
    private static final List<String> ALWAYS = List.of("trySetRate", "setRate", "getConfig", "tryAcquire",
            "tryAcquireAsync", "acquire", "acquireAsync", "availablePermits", "expire", "expireAt", "clearExpire",
            "remainTimeToLive", "isExists", "delete", "getName");
    private static final String[] CONDITIONS = {"IfSet", "IfNotSet", "IfGreater", "IfLess"};

    private final RedissonClient client;

    Operations(RedissonClient client) {
        this.client = client;
    }

    Object call(Request request, String operation, String[] a) throws Exception {
        switch (operation) {
            case "id":
                return client.getId();
            case "currentTimeMillis":
                return System.currentTimeMillis();
            case "operations":
                return String.join(" ", supported());
            default:
        }
        if (a.length == 0) {
            throw new UnsupportedOperationException(operation);
        }
        if (operation.equals("callAPI")) {
            return new Caller(a[0], number(a[3]), Arrays.stream(a).skip(4).map(client::getRateLimiter).toList())
                    .run(Integer.parseInt(a[1]), number(a[2]));
        }
        RRateLimiter limiter = client.getRateLimiter(a[0]);
        switch (operation) {
            case "trySetRate", "setRate":
                return setRate(limiter, operation, a);
            case "setRateArgs":
                return withArgs(limiter, "setRate", a);
            case "updateRate":
                return withArgs(limiter, "updateRate", a);
            case "getConfig":
                RateLimiterConfig config = limiter.getConfig();
                return config.getRateType() + " " + config.getRate() + " " + config.getRateInterval();
            case "tryAcquire":
                return a.length == 2 ? limiter.tryAcquire(number(a[1]))
                        : limiter.tryAcquire(number(a[1]), number(a[2]), TimeUnit.MILLISECONDS);
            case "tryAcquireDuration":
                return invoke(limiter, "tryAcquire", types(long.class, Duration.class), number(a[1]), duration(a[2]));
            case "tryAcquireAsync":
                return wait(request, a.length == 2 ? limiter.tryAcquireAsync(number(a[1]))
                        : limiter.tryAcquireAsync(number(a[1]), number(a[2]), TimeUnit.MILLISECONDS));
            case "acquire":
                limiter.acquire(number(a[1]));
                return null;
            case "acquireAsync":
                return wait(request, limiter.acquireAsync(number(a[1])));
            case "availablePermits":
                return limiter.availablePermits();
            case "release":
                return invoke(limiter, "release", types(long.class), number(a[1]));
            case "expire":
                return limiter.expire(number(a[1]), TimeUnit.MILLISECONDS);
            case "expireAt":
                return limiter.expireAt(number(a[1]));
            case "clearExpire":
                return limiter.clearExpire();
            case "remainTimeToLive":
                return limiter.remainTimeToLive();
            case "getExpireTime":
                return invoke(limiter, "getExpireTime", types());
            case "isExists":
                return limiter.isExists();
            case "delete":
                return limiter.delete();
            case "getName":
                return limiter.getName();
            case "hammer":
                return Load.hammer(limiter, Load.Plan.parse(a));
            default:
        }
        for (String condition : CONDITIONS) {
            if (operation.equals("expire" + condition)) {
                return invoke(limiter, operation, types(Duration.class), duration(a[1]));
            }
            if (operation.equals("expireAt" + condition)) {
                return invoke(limiter, "expire" + condition, types(Instant.class), Instant.ofEpochMilli(number(a[1])));
            }
        }
        throw new UnsupportedOperationException(operation);
    }

    private static Object setRate(RRateLimiter limiter, String method, String[] a) throws Exception {
        RateType type = RateType.valueOf(a[1]);
        if (a.length == 5) {
            return invoke(limiter, method, types(RateType.class, long.class, Duration.class, Duration.class),
                    type, number(a[2]), duration(a[3]), duration(a[4]));
        }
        if (method.equals("trySetRate")) {
            return limiter.trySetRate(type, number(a[2]), number(a[3]), RateIntervalUnit.MILLISECONDS);
        }
        limiter.setRate(type, number(a[2]), number(a[3]), RateIntervalUnit.MILLISECONDS);
        return null;
    }

    private static Object withArgs(RRateLimiter limiter, String method, String[] a) throws Exception {
        Class<?> type = find(ARGS);
        if (type == null) {
            throw new UnsupportedOperationException(method + "(RateLimiterArgs)");
        }
        Object args = type.getMethod("of", RateType.class, long.class, Duration.class)
                .invoke(null, RateType.valueOf(a[1]), number(a[2]), duration(a[3]));
        if (!a[4].equals("-")) {
            args = type.getMethod("keepAliveTime", Duration.class).invoke(args, duration(a[4]));
        }
        args = type.getMethod("keepState", boolean.class).invoke(args, Boolean.parseBoolean(a[5]));
        return invoke(limiter, method, types(type), args);
    }

    private static Object wait(Request request, Future<?> future) throws Exception {
        return request.watch(future).get();
    }

    private static TreeSet<String> supported() {
        TreeSet<String> names = new TreeSet<>(ALWAYS);
        for (Method method : RRateLimiter.class.getMethods()) {
            Class<?>[] parameters = method.getParameterTypes();
            Class<?> last = parameters.length == 0 ? null : parameters[parameters.length - 1];
            String name = method.getName();
            switch (name) {
                case "release", "updateRate", "getExpireTime" -> names.add(name);
                case "tryAcquire" -> addIf(names, parameters.length == 2 && last == Duration.class, "tryAcquireDuration");
                case "setRate" -> addIf(names, last != null && last.getName().equals(ARGS), "setRateArgs");
                case "trySetRate" -> addIf(names, parameters.length == 4 && last == Duration.class, "keepAliveTime");
                case "expireIfSet", "expireIfNotSet", "expireIfGreater", "expireIfLess" ->
                        names.add(last == Instant.class ? name.replace("expire", "expireAt") : name);
                default -> { }
            }
        }
        return names;
    }

    private static void addIf(TreeSet<String> names, boolean has, String name) {
        if (has) {
            names.add(name);
        }
    }

    private static Object invoke(Object target, String name, Class<?>[] types, Object... args) throws Exception {
        Method method;
        try {
            method = RRateLimiter.class.getMethod(name, types);
        } catch (NoSuchMethodException e) {
            throw new UnsupportedOperationException(name);
        }
        try {
            return method.invoke(target, args);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw e;
        }
    }

    private static Class<?> find(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException e) {
            return null;
        }
    }

    private static Class<?>[] types(Class<?>... types) {
        return types;
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }

    private static Duration duration(String word) {
        return Duration.ofMillis(number(word));
    }
}
