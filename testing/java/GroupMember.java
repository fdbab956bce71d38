import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a consumer group with the Java client: see testing/clients/group_member.py for its output. */
public final class GroupMember {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream EVENTS = System.out;
    private static final Map<String, Class<?>> ASSIGNORS = Map.of("range", RangeAssignor.class, "sticky",
            StickyAssignor.class, "cooperative", CooperativeStickyAssignor.class);

    public static void main(String[] arguments) throws Exception {
        JsonNode options = JSON.readTree(arguments[0]);
        AtomicBoolean leaving = new AtomicBoolean();
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // ignore the input, wait for its end
                }
            } catch (java.io.IOException error) {
                error.printStackTrace();
            }
            leaving.set(true);
        });
        watcher.setDaemon(true);
        watcher.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(options))) {
            consumer.subscribe(List.of(options.get("topic").asText()), new Listener(consumer));
            boolean uncommitted = false;
            while (!leaving.get()) {
                ConsumerRecords<byte[], byte[]> records;
                try {
                    records = consumer.poll(Duration.ofMillis(100));
                } catch (KafkaException error) {
                    report(event("error").put("code", Errors.forException(error).name())
                            .put("reason", String.valueOf(error)));
                    throw error;
                }
                for (TopicPartition partition : records.partitions()) {
                    reportConsumed(partition.partition(), records.records(partition));
                }
                if (uncommitted || !records.isEmpty()) {
                    uncommitted = !commit(consumer);
                }
            }
        }
        report(event("left"));
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> settings(JsonNode options) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap_servers").asText());
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, options.get("group_id").asText());
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 100);
        settings.put(ConsumerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 500);
        if (!options.get("instance_id").isNull()) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, options.get("instance_id").asText());
        }
        String protocol = options.get("protocol").asText();
        if (protocol.equals("consumer")) { // the server sets the session timeout
            settings.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, "consumer");
            return settings;
        }
        int sessionTimeoutMs = options.get("session_timeout_ms").asInt();
        settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, sessionTimeoutMs);
        settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, Math.min(300, sessionTimeoutMs / 6));
        settings.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, List.of(ASSIGNORS.get(protocol)));
        return settings;
    }

    private static boolean commit(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        try {
            consumer.commitSync();
        } catch (KafkaException error) {
            report(event("refused").put("reason", String.valueOf(error)));
            return false;
        }
        report(event("committed"));
        return true;
    }

    private static void reportConsumed(int partition, List<ConsumerRecord<byte[], byte[]>> records) throws Exception {
        for (int start = 0, end; start < records.size(); start = end) {
            end = start + 1;
            while (end < records.size() && records.get(end).offset() == records.get(end - 1).offset() + 1) {
                end++;
            }
            report(event("consumed").put("partition", partition).put("first", records.get(start).offset())
                    .put("last", records.get(end - 1).offset()));
        }
    }

    private static ObjectNode event(String name) {
        Instant now = Instant.now();
        return JSON.createObjectNode().put("event", name).put("at", now.getEpochSecond() * 1_000_000_000L + now.getNano());
    }

    private static synchronized void report(ObjectNode event) throws java.io.IOException {
        EVENTS.println(JSON.writeValueAsString(event));
        EVENTS.flush();
    }

    private static final class Listener implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;

        Listener(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            report("assigned", partitions, consumer.groupMetadata().generationId());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            report("revoked", partitions, null);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            report("lost", partitions, null);
        }

        private static void report(String name, Collection<TopicPartition> partitions, Integer generation) {
            ObjectNode event = event(name);
            ArrayNode numbers = event.putArray("partitions");
            partitions.forEach(each -> numbers.add(each.partition()));
            if (generation != null) {
                event.put("generation", generation);
            }
            try {
                GroupMember.report(event);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }
}
