import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactional producers with the Java client: testing/clients/transactor.py describes the operations.
 *
 * <p>It also runs with kafka-clients as old as 2.8, so it uses no newer API.
 */
public final class Transactor {
    private static final Map<String, Transactor> PRODUCERS = new HashMap<>();

    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;

    public static void main(String[] arguments) throws Exception {
        Requests.serve(Transactor::perform, Transactor::code);
    }

    private static String code(Throwable failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            if (each instanceof ProducerFencedException || each instanceof InvalidProducerEpochException) {
                return "FENCED";
            }
        }
        Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
        if (cause instanceof RetriableException) {
            return "RETRIABLE";
        }
        return cause.getClass() == KafkaException.class ? "ABORTABLE" : cause.getClass().getSimpleName();
    }

    private static Object perform(JsonNode request) throws Exception {
        String address = request.get("bootstrap_servers").asText();
        String op = request.get("op").asText();
        if (op.equals("read")) {
            return read(address, texts(request.get("topics")), request.get("committed").asBoolean());
        }
        String name = request.get("producer").asText();
        if (op.equals("open")) {
            PRODUCERS.put(name, new Transactor(address, request));
            return null;
        }
        Transactor transactor = PRODUCERS.get(name);
        switch (op) {
            case "begin":
                transactor.producer.beginTransaction();
                return null;
            case "produce":
                transactor.produce(request);
                return null;
            case "pipe":
                transactor.pipe(request);
                return null;
            case "commit":
                transactor.producer.commitTransaction();
                return null;
            case "abort":
                transactor.producer.abortTransaction();
                return null;
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private Transactor(String address, JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, request.get("transactional_id").asText());
        settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, request.get("timeout_ms").asInt());
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, request.get("codec").asText());
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 500);
        producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        if (request.get("group_id").isNull()) {
            consumer = null;
            return;
        }
        Map<String, Object> ofConsumer = consumerSettings(address, true);
        ofConsumer.put(ConsumerConfig.GROUP_ID_CONFIG, request.get("group_id").asText());
        consumer = new KafkaConsumer<>(ofConsumer);
        consumer.subscribe(List.of(request.get("source").asText()));
    }

    private void produce(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : texts(request.get("values"))) {
            sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(),
                    request.get("partition").asInt(), null, value.getBytes(StandardCharsets.UTF_8))));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }

    private void pipe(JsonNode request) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int left = request.get("count").asInt(); left > 0;) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                left--;
                String value = new String(record.value(), StandardCharsets.UTF_8) + "-piped";
                producer.send(new ProducerRecord<>(request.get("target").asText(), record.partition(), null,
                        value.getBytes(StandardCharsets.UTF_8)));
                offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    private static Map<String, Object> consumerSettings(String address, boolean committed) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 50);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, committed ? "read_committed" : "read_uncommitted");
        return settings;
    }

    private static Map<String, Map<Integer, List<String>>> read(String address, List<String> topics, boolean committed) {
        Map<String, Map<Integer, List<String>>> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(address, committed))) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : topics) {
                found.put(topic, new TreeMap<>());
                for (PartitionInfo each : consumer.partitionsFor(topic)) {
                    partitions.add(new TopicPartition(topic, each.partition()));
                    found.get(topic).put(each.partition(), new ArrayList<>());
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    found.get(record.topic()).get(record.partition())
                            .add(new String(record.value(), StandardCharsets.UTF_8));
                }
            }
        }
        return found;
    }

    private static List<String> texts(JsonNode values) {
        List<String> texts = new ArrayList<>();
        values.forEach(each -> texts.add(each.asText()));
        return texts;
    }
}
