package bench;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One Redisson client with its default configuration but for idle pings, driven by lines on stdin: one request, one answer.
 *
 * <pre>
 * load THREADS MILLIS CALLS COUNT NAME   THREADS threads call tryAcquire() for MILLIS, or CALLS times each if not 0,
 *                                        on NAME, or on a random one of NAME0, NAME1, … if COUNT is above 1;
 *                                        answers "granted rejected failed elapsedNanos p50Nanos p99Nanos error"
 * wait THREADS STAGGER NAME              THREADS threads call acquire(), each begun STAGGER microseconds after the
 *                                        one before; answers the instant of each return, in order of arrival
 * try PERMITS NAME                       tryAcquire(PERMITS); answers "true" or "false"
 * </pre>
 *
 * The greeting is "ready". An answer that begins with "!" is an error. The end of stdin ends the process.
 */
public final class Bench {

    private Bench() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // nothing that a library prints may look like an answer
        Config config = new Config();
        // No pings on idle connections: the PINGs that the server counts are another contestant's.
        config.useSingleServer().setAddress(args[0]).setPingConnectionInterval(0);
        RedissonClient client = Redisson.create(config);
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(answer(client, line.split(" ")));
            } catch (Exception e) {
                e.printStackTrace();
                out.println("!" + e);
            }
        }
        client.shutdown(0, 2, TimeUnit.SECONDS);
        System.exit(0);
    }

    private static String answer(RedissonClient client, String[] words) throws InterruptedException {
        switch (words[0]) {
            case "load":
                return new Load(client, words).run();
            case "wait":
                return Waiters.run(client.getRateLimiter(words[3]), Integer.parseInt(words[1]), Long.parseLong(words[2]));
            case "try":
                return String.valueOf(client.getRateLimiter(words[2]).tryAcquire(Long.parseLong(words[1])));
            default:
                throw new IllegalArgumentException("unknown request " + words[0]);
        }
    }
}
