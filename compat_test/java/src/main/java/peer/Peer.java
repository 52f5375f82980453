package peer;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Drives one Redisson client line by line: requests on stdin, replies on stdout, logs on stderr.
 *
 * <pre>
 * request   ID OP ARG...            ID is any word, chosen by the caller and unique among the requests in flight
 * reply     ID =VALUE               what the operation returned; "null" for null and for void
 *           ID !CLASS MESSAGE       the exception it threw, CLASS with its package, MESSAGE may be empty
 * greeting  ready VERSION CLIENT-ID the first line, once, when the client is connected
 *           failed CLASS MESSAGE    instead, and the process ends with code 1
 * </pre>
 *
 * Words are separated by one space. Every word, VALUE and MESSAGE are written as in the query of a URL, and an empty one
 * is written "%".
 *
 * Every request runs on a thread of its own, so replies come in the order of completion, and a blocked acquire holds
 * up nothing. "cancel ID" cancels a request in flight: it interrupts the thread of a blocking operation, and cancels
 * the future of an Async one. The cancelled request still gets its own reply. The operations are listed in
 * {@link Operations}, {@link Load} and {@link Caller}. The end of stdin shuts the client down and ends the process
 * with code 0. Requests that are still in flight are then interrupted, and may get no reply.
 *
 * Options: --address redis://HOST:PORT, --cluster (the address is then one of its nodes), --name-prefix TEXT (a
 * NameMapper that puts TEXT before every name), --connections N (the pool's size; the default is Redisson's).
 */
public final class Peer {

    private final PrintStream out;
    private final Operations operations;
    private final ExecutorService threads = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "request");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<String, Request> inFlight = new ConcurrentHashMap<>();

    private Peer(PrintStream out, RedissonClient client) {
        this.out = out;
        this.operations = new Operations(client);
    }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err); // nothing that a library prints may look like a reply
        RedissonClient client;
        try {
            client = Redisson.create(Connection.config(args));
        } catch (Exception | LinkageError e) {
            out.println("failed " + error(e));
            out.flush();
            System.exit(1);
            return;
        }
        Peer peer = new Peer(out, client);
        peer.answer("ready " + Words.escape(Connection.version()) + " " + client.getId());
        peer.serve(new BufferedReader(new InputStreamReader(System.in, "UTF-8")));
        peer.threads.shutdownNow();
        client.shutdown(0, 2, TimeUnit.SECONDS);
        System.exit(0);
    }

    private void serve(BufferedReader in) throws IOException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            if (words.length < 2) {
                System.err.println("peer: not a request: " + line);
                continue;
            }
            String id = words[0];
            String[] args = Arrays.stream(words).skip(2).map(Words::unescape).toArray(String[]::new);
            if (words[1].equals("cancel")) {
                Request target = args.length == 1 ? inFlight.get(args[0]) : null;
                answer(id + " =" + (target != null && target.cancel()));
                continue;
            }
            Request request = new Request();
            if (inFlight.putIfAbsent(id, request) != null) {
                System.err.println("peer: id in flight twice: " + line);
                continue;
            }
            threads.execute(() -> run(id, request, words[1], args));
        }
    }

    private void run(String id, Request request, String operation, String[] args) {
        String line;
        try {
            request.begin();
            line = id + " =" + Words.escape(String.valueOf(operations.call(request, operation, args)));
        } catch (Throwable e) { // an Error is a reply as well: NoSuchMethodError tells what a version lacks
            line = id + " !" + error(e);
        }
        request.end();
        inFlight.remove(id);
        answer(line);
    }

    private synchronized void answer(String line) {
        out.println(line);
        out.flush();
    }

    /** Returns the exception as a caller of Redisson would see it: futures and reflection wrap what was thrown. */
    static String error(Throwable e) {
        while (e.getCause() != null && (e instanceof CompletionException || e instanceof ExecutionException
                || e instanceof java.lang.reflect.InvocationTargetException)) {
            e = e.getCause();
        }
        if (!(e instanceof CancellationException || e instanceof InterruptedException
                || e instanceof UnsupportedOperationException)) {
            e.printStackTrace();
        }
        return e.getClass().getName() + " " + Words.escape(e.getMessage() == null ? "" : e.getMessage());
    }
}
