import java.util.List;
import java.util.Optional;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetIdentifier;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacetProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The same cleansing in Flink, EXACTLY_ONCE, at parallelism 2. Ends at the source's end offsets as of the start.
 *
 * Source, cleansing and sink form one chain with object reuse, so records are not copied, and one sink writes lines and
 * dead letters in one transaction. Keeps keys, timestamps and the order of each source partition. Checkpoints stay in
 * memory, which a real deployment could not afford. Omits what the bench's records never need: `too_large` and cutting.
 *
 * Usage: FlinkJob BOOTSTRAP SOURCE SINK DEAD_LETTERS GROUP SINK_PARTITIONS CHECKPOINT_MILLISECONDS
 */
public final class FlinkJob {
    private static final TypeInformation<ConsumerRecord<byte[], byte[]>> RAW = TypeInformation.of(new TypeHint<>() {});
    private static final TypeInformation<ProducerRecord<byte[], byte[]>> CLEAN = TypeInformation.of(new TypeHint<>() {});

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String group = arguments[4];
        Cleanse cleanse = new Cleanse(arguments[2], arguments[3], Integer.parseInt(arguments[5]));
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, new Configuration());
        flink.getConfig().enableObjectReuse();
        flink.enableCheckpointing(Long.parseLong(arguments[6]), CheckpointingMode.EXACTLY_ONCE);
        flink.fromSource(source(bootstrap, arguments[1], group), WatermarkStrategy.noWatermarks(), "raw", RAW)
                .map(cleanse)
                .returns(CLEAN)
                .sinkTo(sink(bootstrap, group, List.of(arguments[2], arguments[3])));
        flink.execute(group);
    }

    private static KafkaSource<ConsumerRecord<byte[], byte[]>> source(String bootstrap, String topic, String group) {
        return KafkaSource.<ConsumerRecord<byte[], byte[]>>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(topic)
                .setGroupId(group)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setDeserializer(new AsItIs())
                .setProperty("isolation.level", "read_committed")
                .setProperty("max.poll.records", "10000")
                .setProperty("fetch.max.bytes", Integer.toString(16 << 20))
                .setProperty("max.partition.fetch.bytes", Integer.toString(4 << 20))
                .build();
    }

    private static KafkaSink<ProducerRecord<byte[], byte[]>> sink(String bootstrap, String group, List<String> topics) {
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", "600000"); // the sink's default of an hour exceeds the brokers' limit
        producer.setProperty("compression.type", "lz4");
        producer.setProperty("batch.size", "1000000");
        producer.setProperty("linger.ms", "20");
        producer.setProperty("buffer.memory", Integer.toString(128 << 20));
        return KafkaSink.<ProducerRecord<byte[], byte[]>>builder()
                .setBootstrapServers(bootstrap)
                .setKafkaProducerConfig(producer)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(group)
                .setTransactionNamingStrategy(TransactionNamingStrategy.POOLING) // reuses producers
                .setRecordSerializer(new Ready(topics))
                .build();
    }

    private static final class AsItIs implements KafkaRecordDeserializationSchema<ConsumerRecord<byte[], byte[]>> {
        @Override
        public void deserialize(
                ConsumerRecord<byte[], byte[]> record, Collector<ConsumerRecord<byte[], byte[]>> collector) {
            collector.collect(record);
        }

        @Override
        public TypeInformation<ConsumerRecord<byte[], byte[]>> getProducedType() {
            return RAW;
        }
    }

    /** Accepts records that name their destination. Pooled producers must know all topics in advance. */
    private static final class Ready
            implements KafkaRecordSerializationSchema<ProducerRecord<byte[], byte[]>>, KafkaDatasetFacetProvider {
        private final List<String> topics;

        Ready(List<String> topics) {
            this.topics = topics;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                ProducerRecord<byte[], byte[]> record, KafkaSinkContext context, Long timestamp) {
            return record;
        }

        @Override
        public Optional<KafkaDatasetFacet> getKafkaDatasetFacet() {
            var identifier = DefaultKafkaDatasetIdentifier.ofTopics(topics);
            return Optional.of(new DefaultKafkaDatasetFacet(identifier, new Properties()));
        }
    }

    private static final class Cleanse
            extends RichMapFunction<ConsumerRecord<byte[], byte[]>, ProducerRecord<byte[], byte[]>> {
        private final String sink;
        private final String deadLetters;
        private final int partitions;
        private transient Cleansing cleansing;

        Cleanse(String sink, String deadLetters, int partitions) {
            this.sink = sink;
            this.deadLetters = deadLetters;
            this.partitions = partitions;
        }

        @Override
        public void open(OpenContext context) {
            cleansing = new Cleansing();
        }

        @Override
        public ProducerRecord<byte[], byte[]> map(ConsumerRecord<byte[], byte[]> raw) {
            byte[] clean = cleansing.cleanse(raw.value());
            if (clean != null) {
                return new ProducerRecord<>(sink, raw.partition() % partitions, raw.timestamp(), raw.key(), clean);
            }
            var headers = DeadLetters.headers(
                    raw.headers(), raw.topic(), raw.partition(), raw.offset(), cleansing.reason());
            return new ProducerRecord<>(deadLetters, 0, raw.timestamp(), raw.key(), raw.value(), headers);
        }
    }
}
