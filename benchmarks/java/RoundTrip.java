import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Measures the latency of a record to its reader: {@code RoundTrip BOOTSTRAP TOPIC RECORDS WARM_UP_RECORDS SIZE}.
 *
 * <p>One after the other, each record is sent with acks=1 to partition 0, waited for, and polled by a consumer at the
 * end of the partition. Kafka's EndToEndLatency does the same, but this result is in microseconds, the first records
 * are not counted, and no offsets are committed. The consumer has its default settings, so its Fetch usually waits at
 * the server when the record arrives; EndToEndLatency polls repeatedly ({@code fetch.max.wait.ms=0}).
 *
 * <p>Prints one line of JSON: records, and p50_us, p99_us, p999_us and max_us of the time from before the send to after
 * the poll.
 */
public final class RoundTrip {
    public static void main(String[] arguments) throws ExecutionException, InterruptedException {
        int counted = Integer.parseInt(arguments[2]);
        int warmUp = Integer.parseInt(arguments[3]);
        byte[] value = new byte[Integer.parseInt(arguments[4])];
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(arguments[0]));
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producerSettings(arguments[0]))) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition); // seeking is lazy: this fetches the end offset
            long[] nanoseconds = new long[counted];
            for (int i = -warmUp; i < counted; i++) {
                Arrays.fill(value, (byte) i);
                long begin = System.nanoTime();
                producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), null, value)).get();
                byte[] received = receive(consumer);
                long took = System.nanoTime() - begin;
                if (!Arrays.equals(received, value)) {
                    throw new IllegalStateException("the received record is not the one that was sent");
                }
                if (i >= 0) {
                    nanoseconds[i] = took;
                }
            }
            Arrays.sort(nanoseconds);
            System.out.printf(
                    "{\"records\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}%n",
                    counted,
                    percentile(nanoseconds, 0.5),
                    percentile(nanoseconds, 0.99),
                    percentile(nanoseconds, 0.999),
                    percentile(nanoseconds, 1.0));
        }
    }

    private static byte[] receive(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(10));
        if (records.count() != 1) {
            throw new IllegalStateException(records.count() + " records were received instead of one");
        }
        return records.iterator().next().value();
    }

    private static double percentile(long[] sorted, double which) {
        return sorted[(int) (which * (sorted.length - 1))] / 1e3;
    }

    private static Properties producerSettings(String bootstrapServers) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(ProducerConfig.ACKS_CONFIG, "1");
        settings.put(ProducerConfig.LINGER_MS_CONFIG, "0"); // 5 by default, which would determine the result
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        return settings;
    }

    private static Properties consumerSettings(String bootstrapServers) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        return settings;
    }
}
