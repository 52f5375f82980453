package peer;

import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;

/** Escapes and unescapes the words of {@link Peer}'s lines. */
final class Words {

    private Words() {
    }

    static String escape(String text) {
        return text.isEmpty() ? "%" : URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    static String unescape(String word) {
        return word.equals("%") ? "" : URLDecoder.decode(word, StandardCharsets.UTF_8);
    }
}
