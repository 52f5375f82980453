import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Iterator;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;

/** Calls a platform as any Java program does: java Caller.java URL CALLERS prints "VERSION {STATUS=COUNT}" and the events. */
class Caller {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        HttpRequest call = HttpRequest.newBuilder(URI.create(args[0] + "/topapi/v2/user/get?access_token=app-key")).build();
        CompletableFuture<?>[] all = new CompletableFuture<?>[Integer.parseInt(args[1])];
        TreeMap<Integer, Integer> statuses = new TreeMap<>();
        HttpClient.Version[] version = new HttpClient.Version[1];
        for (int i = 0; i < all.length; i++) {
            all[i] = client.sendAsync(call, HttpResponse.BodyHandlers.ofString()).thenAccept(r -> {
                synchronized (statuses) {
                    statuses.merge(r.statusCode(), 1, Integer::sum);
                    version[0] = r.version();
                }
            });
            if (i == 0) {
                all[0].join(); // it opens the connections
            }
        }
        CompletableFuture.allOf(all).join();
        System.out.println(version[0] + " " + statuses);

        HttpRequest events = HttpRequest.newBuilder(URI.create(args[0] + "/events")).build();
        Iterator<String> lines = client.send(events, HttpResponse.BodyHandlers.ofLines()).body().iterator();
        System.out.println(lines.next());
        lines.next();
        client.send(HttpRequest.newBuilder(URI.create(args[0] + "/next")).build(), HttpResponse.BodyHandlers.discarding());
        System.out.println(lines.next());
    }
}
