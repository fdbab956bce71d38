import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * The Java client and Kafka's tools. Reads one JSON request per line from standard input and writes one JSON response
 * per line to standard output; testing/clients/program.py has the table of operations.
 *
 * <p>An error is returned as the name of its error code, however the exception was wrapped. Tools run in this JVM with
 * separate standard streams, and with an exit that only unwinds the stack.
 */
public final class CompatDriver {
    private static final long DEADLINE_MS = 60_000;

    private Stream stream;

    public static void main(String[] arguments) throws Exception {
        Requests.serve(new CompatDriver()::perform, CompatDriver::code);
    }

    private static String code(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException
                || cause.getClass() == org.apache.kafka.common.KafkaException.class) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        // Client-side exceptions without an error code are identified by their class names.
        Errors error = Errors.forException(cause);
        return cause instanceof org.apache.kafka.clients.consumer.OffsetOutOfRangeException
                ? "OFFSET_OUT_OF_RANGE"
                : error == Errors.UNKNOWN_SERVER_ERROR ? cause.getClass().getSimpleName() : error.name();
    }

    private static final Map<String, Object> security = new HashMap<>();

    private Object perform(JsonNode request) throws Exception {
        String servers = request.get("bootstrap_servers").asText();
        security.clear(); // requests are performed one after the other
        if (request.hasNonNull("security")) {
            request.get("security").fields().forEachRemaining(each -> security.put(each.getKey(), each.getValue().asText()));
        }
        switch (request.get("op").asText()) {
            case "produce":
                return produce(servers, request);
            case "read":
                return read(servers, request);
            case "offset_for_time":
                return offsetForTime(servers, partition(request), request.get("timestamp").asLong());
            case "offsets":
                return offsets(servers, partition(request));
            case "commit_offset":
                return commitOffset(servers, request);
            case "committed_offset":
                return committedOffset(servers, request);
            case "stream_start":
                stream = new Stream(servers, request.get("topic").asText(), request.get("partitions").asInt());
                stream.start();
                return null;
            case "stream_wait":
                stream.waitAcknowledged(request.get("count").asLong(), request.get("timeout").asLong());
                return null;
            case "stream_stop":
                return stream.finish();
            case "tool":
                return tool(request);
            default:
                Map<String, Object> settings = new HashMap<>(security);
                settings.put("bootstrap.servers", servers);
                try (Admin admin = Admin.create(settings)) {
                    return administer(admin, request);
                }
        }
    }

    // Producing and consuming

    private static Map<String, Object> producerSettings(String servers) {
        Map<String, Object> settings = new HashMap<>(security);
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        return settings;
    }

    private Object produce(String servers, JsonNode request) throws Exception {
        Map<String, Object> settings = producerSettings(servers);
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, request.get("codec").asText());
        settings.put(ProducerConfig.ACKS_CONFIG, request.get("acks").asText());
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, request.get("idempotent").asBoolean());
        settings.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, request.get("max_request_size").asInt());
        settings.put(ProducerConfig.LINGER_MS_CONFIG, request.get("linger_ms").asInt());
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 262_144);
        int giveUpMs = request.get("give_up_ms").asInt();
        settings.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, giveUpMs);
        settings.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, giveUpMs / 2);
        settings.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, giveUpMs);
        if (request.hasNonNull("request_timeout_ms")) {
            settings.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, request.get("request_timeout_ms").asInt());
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Object> delivered = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (JsonNode record : request.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get(4)) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Long timestamp = record.get(1).isNull() ? null : record.get(1).asLong();
                sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), record.get(0).asInt(),
                        timestamp, bytes(record.get(2)), bytes(record.get(3)), headers)));
            }
            for (Future<RecordMetadata> each : sent) {
                RecordMetadata metadata = each.get(DEADLINE_MS, TimeUnit.MILLISECONDS);
                delivered.add(List.of(metadata.partition(), metadata.hasOffset() ? metadata.offset() : -1L));
            }
        }
        return delivered;
    }

    private static Object commitOffset(String servers, JsonNode request) {
        TopicPartition where = partition(request);
        try (KafkaConsumer<byte[], byte[]> consumer = ofGroup(servers, request)) {
            consumer.assign(List.of(where));
            consumer.commitSync(Map.of(where, new OffsetAndMetadata(request.get("start").asLong())));
        }
        return null;
    }

    private static Object committedOffset(String servers, JsonNode request) {
        TopicPartition where = partition(request);
        try (KafkaConsumer<byte[], byte[]> consumer = ofGroup(servers, request)) {
            OffsetAndMetadata found = consumer.committed(Set.of(where)).get(where);
            return found == null ? null : found.offset();
        }
    }

    private static KafkaConsumer<byte[], byte[]> ofGroup(String servers, JsonNode request) {
        Map<String, Object> settings = consumerSettings(servers);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, request.get("group").asText());
        return new KafkaConsumer<>(settings);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String servers, JsonNode fetchMaxBytes) {
        Map<String, Object> settings = consumerSettings(servers);
        if (fetchMaxBytes != null && !fetchMaxBytes.isNull()) {
            settings.put(ConsumerConfig.FETCH_MAX_BYTES_CONFIG, fetchMaxBytes.asInt());
            settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, fetchMaxBytes.asInt());
        }
        return new KafkaConsumer<>(settings);
    }

    private static Map<String, Object> consumerSettings(String servers) {
        Map<String, Object> settings = new HashMap<>(security);
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        settings.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
        settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 50); // close() waits for the pending fetch
        settings.put(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, 10_000);
        return settings;
    }

    private static Object read(String servers, JsonNode request) throws Exception {
        TopicPartition where = partition(request);
        List<Object> received = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(servers, request.get("fetch_max_bytes"))) {
            consumer.assign(List.of(where));
            long end = consumer.endOffsets(List.of(where)).get(where);
            boolean outOfRange = false;
            if (request.get("start").isNull()) {
                consumer.seekToBeginning(List.of(where));
            } else {
                consumer.seek(where, request.get("start").asLong());
                outOfRange = request.get("start").asLong() > end;
            }
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (consumer.position(where) < end || outOfRange) {
                if (System.currentTimeMillis() > deadline) {
                    throw new TimeoutException(received.size() + " records, position " + consumer.position(where));
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    List<Object> headers = new ArrayList<>();
                    record.headers().forEach(each -> headers.add(Arrays.asList(each.key(), each.value())));
                    received.add(Arrays.asList(record.offset(), record.timestamp(), record.timestampType().name,
                            record.key(), record.value(), headers));
                }
            }
        }
        return received;
    }

    private static Object offsetForTime(String servers, TopicPartition where, long timestamp) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(servers, null)) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(where, timestamp)).get(where);
            return found == null ? null : found.offset();
        }
    }

    private static Object offsets(String servers, TopicPartition where) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(servers, null)) {
            List<TopicPartition> partitions = List.of(where);
            return List.of(consumer.beginningOffsets(partitions).get(where), consumer.endOffsets(partitions).get(where));
        }
    }

    /** An idempotent producer that sends numbered records to the partitions in turn until it is stopped. */
    private static final class Stream extends Thread {
        private final String topic;
        private final KafkaProducer<byte[], byte[]> producer;
        private final Semaphore room = new Semaphore(400);
        private final Map<Integer, List<String>> acknowledged = new TreeMap<>();
        private volatile boolean stopping;
        private long count;
        private long waitedFor;
        private Exception failure;

        Stream(String servers, String topic, int partitions) {
            this.topic = topic;
            Map<String, Object> settings = producerSettings(servers);
            settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
            settings.put(ProducerConfig.LINGER_MS_CONFIG, 5);
            settings.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 500);
            producer = new KafkaProducer<>(settings);
            for (int partition = 0; partition < partitions; partition++) {
                acknowledged.put(partition, new ArrayList<>());
            }
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                for (long number = 0; !stopping; number++) {
                    for (int partition : acknowledged.keySet()) {
                        while (!room.tryAcquire(200, TimeUnit.MILLISECONDS)) {
                            if (stopping) {
                                return;
                            }
                        }
                        send(partition, partition + "-" + number);
                    }
                }
            } catch (Exception error) {
                done(0, null, error);
            }
        }

        private void send(int partition, String value) {
            byte[] data = value.getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, partition, null, data), (metadata, error) -> {
                room.release();
                done(partition, value, error);
            });
        }

        private synchronized void done(int partition, String value, Exception error) {
            if (error != null) {
                failure = failure == null ? error : failure;
                stopping = true;
            } else {
                acknowledged.get(partition).add(value);
                count++;
            }
            if (error != null || count >= waitedFor) {
                notifyAll();
            }
        }

        synchronized void waitAcknowledged(long more, long timeoutSeconds) throws Exception {
            waitedFor = Math.max(waitedFor, count) + more;
            long deadline = System.currentTimeMillis() + timeoutSeconds * 1000;
            while (count < waitedFor && failure == null) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    throw new TimeoutException(count + " of " + waitedFor + " records acknowledged");
                }
                wait(left);
            }
            raiseFailure();
        }

        Map<Integer, List<String>> finish() throws Exception {
            stopping = true;
            join(DEADLINE_MS);
            producer.flush();
            producer.close();
            raiseFailure();
            return acknowledged;
        }

        private synchronized void raiseFailure() throws Exception {
            if (failure != null) {
                throw failure;
            }
        }
    }

    // Administration

    private static Object administer(Admin admin, JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition where = new TopicPartition(topic, request.path("partition").asInt());
        switch (request.get("op").asText()) {
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                request.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
                NewTopic wanted = new NewTopic(topic, request.get("partitions").asInt(), (short) 1).configs(configs);
                admin.createTopics(List.of(wanted)).all().get();
                return null;
            }
            case "topics": {
                Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
                Map<String, Integer> topics = new TreeMap<>();
                for (var each : admin.describeTopics(names).topicNameValues().entrySet()) {
                    try {
                        topics.put(each.getKey(), each.getValue().get().partitions().size());
                    } catch (ExecutionException error) {
                        if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) {
                            throw error;
                        } // otherwise it has been deleted since it was listed
                    }
                }
                return topics;
            }
            case "delete_topic":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "create_partitions":
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("total").asInt()))).all().get();
                return null;
            case "topic_configs": {
                Map<String, String> configs = new TreeMap<>();
                for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                    configs.put(entry.name(), entry.value());
                }
                return configs;
            }
            case "set_topic_config": {
                ConfigEntry entry = new ConfigEntry(request.get("key").asText(), request.get("value").asText());
                Collection<AlterConfigOp> change = List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
                admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
                return null;
            }
            case "delete_records": {
                RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
                return admin.deleteRecords(Map.of(where, before)).lowWatermarks().get(where).get().lowWatermark();
            }
            case "groups":
                return admin.listGroups().all().get().stream().map(each -> each.groupId()).toList();
            case "describe_group": {
                String group = request.get("group").asText();
                var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                return List.of(found.groupState().toString(), found.members().size());
            }
            case "delete_group":
                admin.deleteConsumerGroups(List.of(request.get("group").asText())).all().get();
                return null;
            default:
                return inspect(admin, request, where);
        }
    }

    /** Operations of the Java client only; their results are plain maps and lists. */
    private static Object inspect(Admin admin, JsonNode request, TopicPartition where) throws Exception {
        Map<String, Object> response = new LinkedHashMap<>();
        switch (request.get("op").asText()) {
            case "describe_topic": {
                TopicDescription found = admin.describeTopics(List.of(where.topic())).allTopicNames().get().get(where.topic());
                response.put("topic_id", found.topicId().toString());
                response.put("internal", found.isInternal());
                List<Object> partitions = new ArrayList<>();
                found.partitions().forEach(each -> partitions.add(Arrays.asList(each.partition(), each.leader().id(),
                        each.replicas().stream().map(node -> node.id()).toList(),
                        each.isr().stream().map(node -> node.id()).toList())));
                response.put("partitions", partitions);
                return response;
            }
            case "describe_cluster": {
                var cluster = admin.describeCluster();
                response.put("cluster_id", cluster.clusterId().get());
                response.put("controller", cluster.controller().get().id());
                response.put("nodes", cluster.nodes().get().stream().map(node -> node.host() + ":" + node.port()).toList());
                return response;
            }
            case "list_offsets": {
                Map<String, OffsetSpec> specs = Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                        "max_timestamp", OffsetSpec.maxTimestamp(), "earliest_local", OffsetSpec.earliestLocal(),
                        "latest_tiered", OffsetSpec.latestTiered());
                for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
                    ListOffsetsResult.ListOffsetsResultInfo found =
                            admin.listOffsets(Map.of(where, spec.getValue())).partitionResult(where).get();
                    response.put(spec.getKey(), List.of(found.offset(), found.timestamp()));
                }
                return response;
            }
            case "describe_configs": {
                ConfigResource resource = new ConfigResource(
                        ConfigResource.Type.valueOf(request.get("type").asText()), request.get("name").asText());
                DescribeConfigsOptions options =
                        new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
                Config config = admin.describeConfigs(List.of(resource), options).all().get().get(resource);
                for (ConfigEntry entry : config.entries()) {
                    List<Object> synonyms = new ArrayList<>();
                    entry.synonyms().forEach(each -> synonyms.add(
                            Arrays.asList(each.name(), each.value(), each.source().name())));
                    Map<String, Object> described = new LinkedHashMap<>();
                    described.put("value", entry.value());
                    described.put("source", entry.source().name());
                    described.put("type", entry.type().name());
                    described.put("sensitive", entry.isSensitive());
                    described.put("read_only", entry.isReadOnly());
                    described.put("synonyms", synonyms);
                    described.put("documented", entry.documentation() != null && !entry.documentation().isEmpty());
                    response.put(entry.name(), described);
                }
                return response;
            }
            case "alter_config": {
                ConfigResource resource = new ConfigResource(
                        ConfigResource.Type.valueOf(request.get("type").asText()), request.get("name").asText());
                ConfigEntry entry = new ConfigEntry(request.get("key").asText(), request.path("value").textValue());
                AlterConfigOp.OpType how = AlterConfigOp.OpType.valueOf(request.get("how").asText());
                Collection<AlterConfigOp> change = List.of(new AlterConfigOp(entry, how));
                admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
                return null;
            }
            case "list_config_resources":
                return admin.listConfigResources().all().get().stream()
                        .map(each -> List.of(each.type().name(), each.name())).toList();
            case "describe_log_dirs": {
                List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(node -> node.id()).toList();
                admin.describeLogDirs(brokers).allDescriptions().get().values().forEach(directories ->
                    directories.forEach((path, directory) -> {
                        Map<String, Object> replicas = new TreeMap<>();
                        for (Map.Entry<TopicPartition, ReplicaInfo> each : directory.replicaInfos().entrySet()) {
                            ReplicaInfo replica = each.getValue();
                            replicas.put(each.getKey().toString(), List.of(replica.size(), replica.offsetLag()));
                        }
                        response.put(path, replicas);
                    }));
                return response;
            }
            case "describe_producers": {
                List<Object> producers = new ArrayList<>();
                for (ProducerState each : admin.describeProducers(List.of(where)).all().get().get(where).activeProducers()) {
                    producers.add(List.of(each.producerId(), each.producerEpoch(), each.lastSequence(),
                            each.currentTransactionStartOffset().isPresent()));
                }
                return producers;
            }
            case "describe_quorum": {
                QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
                response.put("leader_id", quorum.leaderId());
                response.put("leader_epoch", quorum.leaderEpoch());
                response.put("high_watermark", quorum.highWatermark());
                response.put("voters", quorum.voters().stream().map(each -> each.replicaId()).toList());
                response.put("nodes", new ArrayList<>(quorum.nodes().keySet()));
                return response;
            }
            case "describe_features": {
                var features = admin.describeFeatures().featureMetadata().get();
                Map<String, Object> finalized = new TreeMap<>();
                features.finalizedFeatures().forEach((name, range) -> finalized.put(name, (int) range.maxVersionLevel()));
                response.put("finalized", finalized);
                response.put("supported", new ArrayList<>(features.supportedFeatures().keySet()));
                return response;
            }
            case "elect_leaders":
                admin.electLeaders(ElectionType.valueOf(request.get("type").asText()), Set.of(where)).partitions().get()
                        .forEach((partition, error) -> response.put(partition.toString(),
                                error.map(each -> Errors.forException(each).name()).orElse("NONE")));
                return response;
            case "list_reassignments":
                return admin.listPartitionReassignments().reassignments().get().size();
            case "delete_topic_by_id": {
                var id = admin.describeTopics(List.of(where.topic())).allTopicNames().get().get(where.topic()).topicId();
                admin.deleteTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).all().get();
                return null;
            }
            case "create_topic_with_assignment": {
                Map<Integer, List<Integer>> assignment = new HashMap<>();
                for (int partition = 0; partition < request.get("assignment").size(); partition++) {
                    List<Integer> replicas = new ArrayList<>();
                    request.get("assignment").get(partition).forEach(each -> replicas.add(each.asInt()));
                    assignment.put(partition, replicas);
                }
                var result = admin.createTopics(List.of(new NewTopic(where.topic(), assignment)));
                response.put("partitions", result.numPartitions(where.topic()).get());
                response.put("replication_factor", result.replicationFactor(where.topic()).get());
                response.put("configs", result.config(where.topic()).get().entries().size());
                return response;
            }
            case "describe_acls":
                return admin.describeAcls(org.apache.kafka.common.acl.AclBindingFilter.ANY).values().get().size();
            case "describe_client_quotas":
                return admin.describeClientQuotas(org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get().size();
            case "describe_scram_users":
                return admin.describeUserScramCredentials().all().get().size();
            default:
                throw new IllegalArgumentException("unknown operation " + request.get("op").asText());
        }
    }

    // Tools

    /** Thrown instead of exiting the JVM. */
    private static final class ToolExit extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    private static Object tool(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(each -> arguments.add(each.asText()));
        ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        InputStream inputBefore = System.in;
        PrintStream outputBefore = System.out;
        PrintStream errorBefore = System.err;
        int code = 0;
        // Some tools catch every exception, including their own exit, and exit again: the first exit counts.
        AtomicReference<Integer> firstExit = new AtomicReference<>();
        Exit.Procedure exit = (status, message) -> {
            firstExit.compareAndSet(null, status);
            throw new ToolExit();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        // The shutdown hooks of a tool run at the end of its run.
        List<Runnable> atEnd = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> atEnd.add(hook));
        try (PrintStream out = new PrintStream(stdout, true, StandardCharsets.UTF_8);
                PrintStream err = new PrintStream(stderr, true, StandardCharsets.UTF_8)) {
            System.setIn(new ByteArrayInputStream(request.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(out);
            System.setErr(err);
            String mainClass = request.get("main_class").asText();
            // The tools written in Scala print through Console, which keeps the first streams it was given.
            code = scala.Console.withOut(out, () -> scala.Console.withErr(err, () -> runMain(mainClass, arguments, err)));
            atEnd.forEach(Runnable::run);
        } finally {
            System.setIn(inputBefore);
            System.setOut(outputBefore);
            System.setErr(errorBefore);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            Exit.resetShutdownHookAdder();
        }
        return Map.of("exit_code", firstExit.get() == null ? code : firstExit.get(),
                "stdout", stdout.toString(StandardCharsets.UTF_8), "stderr", stderr.toString(StandardCharsets.UTF_8));
    }

    private static int runMain(String mainClass, List<String> arguments, PrintStream err) {
        try {
            Class.forName(mainClass).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments.toArray(new String[0]));
            return 0;
        } catch (InvocationTargetException wrapped) {
            if (wrapped.getCause() instanceof ToolExit) {
                return 0; // the exit procedure has the exit code
            }
            wrapped.getCause().printStackTrace(err);
            return 1;
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException("no tool " + mainClass, error);
        }
    }

    // Values

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }
}
