import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads the first records of a topic's partition 0 as fast as it can: {@code AssignedConsumer BOOTSTRAP TOPIC RECORDS
 * [SETTING=VALUE ...]}.
 *
 * <p>It assigns the partition instead of subscribing, so no group is used, and has the consumer's default settings,
 * except for those that are given. The clock starts when the first poll has returned records, which are not counted,
 * and stops with the last one: connecting and fetching metadata are excluded. Prints one line of JSON: records, bytes of their values, seconds.
 */
public final class AssignedConsumer {
    public static void main(String[] arguments) {
        long wanted = Long.parseLong(arguments[2]);
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        for (String argument : List.of(arguments).subList(3, arguments.length)) {
            String[] setting = argument.split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(arguments[1], 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long left = wanted - poll(consumer).count();
            long counted = 0;
            long bytes = 0;
            long started = System.nanoTime();
            while (counted < left) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    bytes += record.value().length;
                    counted++;
                }
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            System.out.printf("{\"records\": %d, \"bytes\": %d, \"seconds\": %.6f}%n", counted, bytes, seconds);
        }
    }

    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(10));
        if (records.isEmpty()) {
            throw new IllegalStateException("no records were received for ten seconds");
        }
        return records;
    }
}
