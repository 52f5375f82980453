package peer;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** Escapes and unescapes the words of {@link Peer}'s lines. */
final class Words {

    private Words() {
    }

    static String escape(String text) {
        if (text.isEmpty()) {
            return "%";
        }
        StringBuilder word = new StringBuilder();
        for (char c : text.toCharArray()) {
            if (c <= ' ' || c == '%' || c == 0x7f) {
                word.append(String.format("%%%02X", (int) c));
            } else {
                word.append(c);
            }
        }
        return word.toString();
    }

    static String unescape(String word) {
        if (word.equals("%")) {
            return "";
        }
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        byte[] bytes = word.getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < bytes.length; i++) {
            if (bytes[i] == '%') {
                text.write(Integer.parseInt(new String(bytes, i + 1, 2, StandardCharsets.US_ASCII), 16));
                i += 2;
            } else {
                text.write(bytes[i]);
            }
        }
        return text.toString(StandardCharsets.UTF_8);
    }
}
