import static java.util.concurrent.TimeUnit.SECONDS;
import static java.util.stream.Collectors.toMap;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/**
 * The same cleansing in Kafka Streams, exactly_once_v2, with two threads. Ends at the end offsets as of the start.
 *
 * Uses the Processor API: the DSL costs more and drops records without a key or a value. Keeps keys, timestamps and the
 * order of each source partition. Omits what the bench's records never need: `too_large` and cutting.
 *
 * Usage: KafkaStreamsJob BOOTSTRAP SOURCE SINK DEAD_LETTERS GROUP FOLDER
 */
public final class KafkaStreamsJob {
    private record Line(byte[] value, int partition) {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String source = arguments[1];
        Map<Integer, Long> ends = ends(bootstrap, source);
        CountDownLatch unfinished = new CountDownLatch((int) ends.values().stream().filter(end -> end > 0).count());
        Topology topology = topology(source, arguments[2], arguments[3], ends, unfinished);
        KafkaStreams streams = new KafkaStreams(topology, settings(bootstrap, arguments[4], arguments[5]));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (!unfinished.await(1, SECONDS)) {
            if (streams.state().hasStartedOrFinishedShuttingDown()) {
                System.exit(1);
            }
        }
        System.exit(streams.close(Duration.ofMinutes(1)) ? 0 : 1); // closing commits the open transaction
    }

    private static Map<Integer, Long> ends(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var partitions = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions();
            Map<TopicPartition, OffsetSpec> asked = partitions.stream()
                    .collect(toMap(found -> new TopicPartition(topic, found.partition()), found -> OffsetSpec.latest()));
            return admin.listOffsets(asked).all().get().entrySet().stream()
                    .collect(toMap(found -> found.getKey().partition(), found -> found.getValue().offset()));
        }
    }

    private static Properties settings(String bootstrap, String group, String folder) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", bootstrap,
                "application.id", group,
                "state.dir", folder,
                "processing.guarantee", StreamsConfig.EXACTLY_ONCE_V2,
                "num.stream.threads", 2,
                "commit.interval.ms", 500)); // Winnow's; the default of exactly_once_v2 is 100
        settings.putAll(Map.of(
                "consumer.auto.offset.reset", "earliest",
                "consumer.max.poll.records", 10_000,
                "consumer.fetch.max.bytes", 16 << 20,
                "consumer.max.partition.fetch.bytes", 4 << 20,
                "buffered.records.per.partition", 20_000)); // more than a poll returns: pausing a partition is expensive
        settings.putAll(Map.of(
                "producer.compression.type", "lz4",
                "producer.batch.size", 1_000_000,
                "producer.linger.ms", 20,
                "producer.buffer.memory", 128 << 20));
        return settings;
    }

    private static Topology topology(
            String source, String sink, String deadLetters, Map<Integer, Long> ends, CountDownLatch unfinished) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        ByteArraySerializer key = new ByteArraySerializer();
        Serializer<Line> value = (topic, line) -> line.value;
        StreamPartitioner<byte[], Line> sameOrder = (topic, ignored, line, partitions) ->
                Optional.of(Set.of(line.partition % partitions));
        return new Topology()
                .addSource("raw", bytes, bytes, source)
                .addProcessor("cleanse", () -> new Cleanse(ends, unfinished), "raw")
                .addSink("clean", sink, key, value, sameOrder, "cleanse")
                .addSink("dead", deadLetters, key, value, sameOrder, "cleanse");
    }

    private static final class Cleanse implements Processor<byte[], byte[], byte[], Line> {
        private final Cleansing cleansing = new Cleansing();
        private final Map<Integer, Long> ends;
        private final CountDownLatch unfinished;
        private ProcessorContext<byte[], Line> context;

        Cleanse(Map<Integer, Long> ends, CountDownLatch unfinished) {
            this.ends = ends;
            this.unfinished = unfinished;
        }

        @Override
        public void init(ProcessorContext<byte[], Line> context) {
            this.context = context;
        }

        @Override
        public void process(Record<byte[], byte[]> raw) {
            RecordMetadata origin = context.recordMetadata().orElseThrow();
            byte[] clean = cleansing.cleanse(raw.value());
            if (clean != null) {
                context.forward(raw.withValue(new Line(clean, origin.partition())), "clean");
            } else {
                context.forward(deadLetter(raw, origin), "dead");
            }
            if (origin.offset() + 1 == ends.get(origin.partition())) {
                unfinished.countDown();
            }
        }

        private Record<byte[], Line> deadLetter(Record<byte[], byte[]> raw, RecordMetadata origin) {
            Record<byte[], Line> letter = raw.withValue(new Line(raw.value(), origin.partition()));
            return letter.withHeaders(DeadLetters.headers(
                    raw.headers(), origin.topic(), origin.partition(), origin.offset(), cleansing.reason()));
        }
    }
}
