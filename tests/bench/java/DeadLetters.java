import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** The headers of a dead letter, as Winnow and Kafka Connect write them. */
final class DeadLetters {
    private DeadLetters() {}

    static Headers headers(Headers original, String topic, int partition, long offset, String reason) {
        Headers headers = new RecordHeaders(original);
        add(headers, "stage", "VALUE_CONVERTER");
        add(headers, "topic", topic);
        add(headers, "partition", Integer.toString(partition));
        add(headers, "offset", Long.toString(offset));
        add(headers, "exception.class.name", reason);
        add(headers, "exception.message", "rejected: " + reason);
        return headers;
    }

    private static void add(Headers headers, String name, String text) {
        headers.add("__connect.errors." + name, text.getBytes(UTF_8));
    }
}
