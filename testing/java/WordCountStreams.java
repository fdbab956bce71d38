import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A word count with Kafka Streams, exactly once: reads lines, writes each word with its count whenever that changes.
 *
 * <p>Its only argument is a JSON object: bootstrap_servers, application_id, instance, state_dir, source, target. It
 * writes its state to standard output, and "working" at intervals while it processes records. SIGTERM stops it.
 */
public final class WordCountStreams {
    /** The number of records between two "working" lines. */
    private static final long SIGN_OF_LIFE = 50;

    public static void main(String[] arguments) throws Exception {
        JsonNode options = new ObjectMapper().readTree(arguments[0]);
        StreamsBuilder builder = new StreamsBuilder();
        AtomicLong seen = new AtomicLong();
        KStream<String, String> lines =
                builder.stream(text(options, "source"), Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .peek((key, word) -> signOfLife(seen))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as("counts"))
                .toStream()
                .peek((word, count) -> signOfLife(seen))
                .to(text(options, "target"), Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), properties(options));
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Properties properties(JsonNode options) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, text(options, "bootstrap_servers"));
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, text(options, "application_id"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, text(options, "state_dir"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        // At nearly every moment there are records that were sent and are not committed.
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 300);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 0);
        // Every count is written, so that a word that was counted twice or omitted is visible.
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        // Processed records of the repartition topic are deleted with DeleteRecords.
        properties.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        // A restarted instance gets its tasks immediately.
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), text(options, "instance"));
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        return properties;
    }

    private static void signOfLife(AtomicLong seen) {
        if (seen.incrementAndGet() % SIGN_OF_LIFE == 0) {
            System.out.println("working");
        }
    }

    private static String text(JsonNode options, String name) {
        return options.get(name).asText();
    }
}
