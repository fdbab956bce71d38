import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's log of one partition, controlled by commands: the reference for the tests of Moldau's log.
 *
 * Standard input has one command per line, standard output one response per line:
 * open DIR CLEAN RECOVERY_POINT LOG_START_OFFSET NOW [key=value ...]
 * append EPOCH HEX          a client's append: "ok FIRST LAST TIME", or "error CODE RECORD_INDEX,..."
 * own EPOCH HEX             an append of the broker itself (coordinators, markers)
 *     Both accept the number of a verification guard as the last argument.
 * verifying BOOLEAN         whether new logs require transaction verification; guards are numbered from 0
 * verify PRODUCER SEQUENCE EPOCH EPOCH_PER_TRANSACTION    the number of a verification guard, "open" or "error CODE"
 * marker EPOCH PRODUCER PRODUCER_EPOCH COMMIT|ABORT COORDINATOR_EPOCH TRANSACTION_VERSION
 * stable                    the last stable offset
 * committed OFFSET BYTES    a read: the number of bytes, then "PRODUCER FIRST" of aborted transactions, then "."
 * describe                  many lines, then "."
 * time TIMESTAMP            "TIMESTAMP OFFSET EPOCH" or "none"
 * epoch EPOCH               "EPOCH END"
 * aborted FROM TO           "PRODUCER FIRST LAST" for each, then "."
 * truncate OFFSET / roll / delete OFFSET / flush
 * now TIME                  set the clock
 * retain                    delete old segments: their number
 * clean DIRTY BYTES         run the log cleaner from offset DIRTY, with an offset map of BYTES bytes: the next DIRTY
 * close CLEAN
 */
public final class KafkaLog {
    private static final HexFormat HEX = HexFormat.of();
    private static long now;
    private static UnifiedLog log;
    private static boolean verifying;
    private static final List<VerificationGuard> GUARDS = new ArrayList<>();

    private static final Time TIME = new Time() {
        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
        }
    };

    /** Runs one-time tasks immediately, and periodic tasks never. */
    private static final Scheduler SCHEDULER = new Scheduler() {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                task.run();
            }
            return new Nothing();
        }

        @Override
        public void resizeThreadPool(int newSize) {
        }
    };

    private static final class Nothing extends java.util.concurrent.FutureTask<Void> implements ScheduledFuture<Void> {
        Nothing() {
            super(() -> null);
        }

        @Override
        public long getDelay(java.util.concurrent.TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(java.util.concurrent.Delayed other) {
            return 0;
        }
    }

    public static void main(String[] args) throws Exception {
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            System.out.println(response(line.split(" ")));
            System.out.flush();
        }
    }

    private static String response(String[] words) {
        try {
            return switch (words[0]) {
                case "open" -> open(words);
                case "append" -> append(words, AppendOrigin.CLIENT);
                case "own" -> append(words, AppendOrigin.COORDINATOR);
                case "verifying" -> verifying(Boolean.parseBoolean(words[1]));
                case "verify" -> verify(words);
                case "marker" -> marker(words);
                case "stable" -> "" + log.lastStableOffset();
                case "committed" -> committed(Long.parseLong(words[1]), Integer.parseInt(words[2]));
                case "describe" -> describe();
                case "time" -> time(Long.parseLong(words[1]));
                case "epoch" -> epoch(Integer.parseInt(words[1]));
                case "aborted" -> aborted(Long.parseLong(words[1]), Long.parseLong(words[2]));
                case "truncate" -> "" + log.truncateTo(Long.parseLong(words[1]));
                case "roll" -> "" + log.roll().baseOffset();
                case "delete" -> "" + log.maybeIncrementLogStartOffset(Long.parseLong(words[1]),
                    org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason.ClientRecordDeletion)
                    + log.deleteOldSegments();
                case "retain" -> "" + log.deleteOldSegments();
                case "flush" -> flush();
                case "now" -> "" + (now = Long.parseLong(words[1]));
                case "clean" -> clean(Long.parseLong(words[1]), Integer.parseInt(words[2]));
                case "close" -> close(Boolean.parseBoolean(words[1]));
                default -> throw new IllegalArgumentException(words[0]);
            };
        } catch (Throwable error) {
            return "failed " + error.toString().replace('\n', ' ');
        }
    }

    private static String open(String[] words) throws Exception {
        now = Long.parseLong(words[5]);
        Map<String, String> properties = new HashMap<>();
        for (int i = 6; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        log = UnifiedLog.create(new File(words[1]), new LogConfig(properties), Long.parseLong(words[4]),
            Long.parseLong(words[3]), SCHEDULER, new BrokerTopicStats(), TIME, 60_000,
            new ProducerStateManagerConfig(86_400_000, verifying), 600_000, new LogDirFailureChannel(1),
            Boolean.parseBoolean(words[2]), Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        return "ok";
    }

    private static String verifying(boolean wanted) {
        verifying = wanted;
        GUARDS.clear();
        return "" + wanted;
    }

    private static String verify(String[] words) {
        try {
            VerificationGuard guard = log.maybeStartTransactionVerification(Long.parseLong(words[1]),
                Integer.parseInt(words[2]), Short.parseShort(words[3]), Boolean.parseBoolean(words[4]));
            if (guard == VerificationGuard.SENTINEL) {
                return "open";
            }
            if (!GUARDS.contains(guard)) {
                GUARDS.add(guard);
            }
            return "" + GUARDS.indexOf(guard);
        } catch (Throwable error) {
            return "error " + Errors.forException(error).name();
        }
    }

    private static String marker(String[] words) {
        EndTransactionMarker marker = new EndTransactionMarker(
            ControlRecordType.valueOf(words[4]), Integer.parseInt(words[5]));
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(now,
            Long.parseLong(words[2]), Short.parseShort(words[3]), marker);
        return append(records, Integer.parseInt(words[1]), AppendOrigin.COORDINATOR, VerificationGuard.SENTINEL,
            Short.parseShort(words[6]));
    }

    private static String committed(long offset, int bytes) throws Exception {
        var found = log.read(offset, bytes, FetchIsolation.TXN_COMMITTED, true);
        StringBuilder text = new StringBuilder();
        text.append(found.records.sizeInBytes()).append('\n');
        for (var aborted : found.abortedTransactions.orElse(List.of())) {
            text.append(aborted.producerId()).append(' ').append(aborted.firstOffset()).append('\n');
        }
        return text + ".";
    }

    private static String append(String[] words, AppendOrigin origin) {
        MemoryRecords records = MemoryRecords.readableRecords(
            ByteBuffer.wrap(words.length > 2 ? HEX.parseHex(words[2]) : new byte[0]));
        VerificationGuard guard = words.length > 3
            ? GUARDS.get(Integer.parseInt(words[3])) : VerificationGuard.SENTINEL;
        return append(records, Integer.parseInt(words[1]), origin, guard, (short) 1);
    }

    private static String append(MemoryRecords records, int epoch, AppendOrigin origin, VerificationGuard guard,
                                 short transactionVersion) {
        try {
            if (origin == AppendOrigin.CLIENT) {
                ProduceRequest.validateRecords((short) 12, records);
            }
            LogAppendInfo info = log.appendAsLeader(records, epoch, origin,
                org.apache.kafka.server.common.RequestLocal.noCaching(), guard, transactionVersion);
            log.updateHighWatermark(log.logEndOffset());
            return "ok " + info.firstOffset() + " " + info.lastOffset() + " " + info.logAppendTime();
        } catch (RecordValidationException error) {
            List<String> indexes = new ArrayList<>();
            for (ProduceResponse.RecordError record : error.recordErrors()) {
                indexes.add("" + record.batchIndex);
            }
            return "error " + Errors.forException(error.invalidException()).name() + " " + String.join(",", indexes);
        } catch (Throwable error) {
            return "error " + Errors.forException(error).name();
        }
    }

    private static String describe() throws Exception {
        StringBuilder text = new StringBuilder();
        text.append("offsets ").append(log.logStartOffset()).append(' ').append(log.logEndOffset()).append('\n');
        for (LogSegment segment : log.logSegments()) {
            text.append("segment ").append(segment.baseOffset()).append(' ').append(segment.size()).append(' ')
                .append(segment.maxTimestampSoFar()).append('\n');
        }
        for (var entry : new TreeMap<>(log.producerStateManager().activeProducers()).entrySet()) {
            ProducerStateEntry state = entry.getValue();
            long lastSequence = -1;
            long lastOffset = -1;
            for (var batch : state.batchMetadata()) {
                lastSequence = batch.lastSeq();
                lastOffset = batch.lastOffset();
            }
            text.append("producer ").append(entry.getKey()).append(' ').append(state.producerEpoch()).append(' ')
                .append(lastSequence).append(' ').append(lastOffset).append(' ').append(state.lastTimestamp())
                .append(' ').append(state.coordinatorEpoch()).append(' ')
                .append(state.currentTxnFirstOffset().orElse(-1)).append('\n');
        }
        for (var entry : log.leaderEpochCache().epochEntries()) {
            text.append("epoch ").append(entry.epoch()).append(' ').append(entry.startOffset()).append('\n');
        }
        long offset = log.logStartOffset();
        while (offset < log.logEndOffset()) {
            var records = log.read(offset, Integer.MAX_VALUE, FetchIsolation.LOG_END, true).records;
            long before = offset;
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    if (record.offset() >= offset) {
                        text.append("record ").append(record.offset()).append(' ').append(record.timestamp())
                            .append(' ').append(hex(record.key())).append(' ').append(hex(record.value()))
                            .append('\n');
                    }
                }
                offset = batch.nextOffset();
            }
            if (offset == before) {
                break;
            }
        }
        return text + ".";
    }

    private static String time(long timestamp) {
        var found = log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt();
        return found.map(at -> at.timestamp + " " + at.offset + " " + at.leaderEpoch.orElse(-1)).orElse("none");
    }

    private static String epoch(int epoch) {
        return log.endOffsetForEpoch(epoch).map(end -> end.epoch() + " " + end.offset()).orElse("-1 -1");
    }

    private static String aborted(long from, long to) {
        StringBuilder text = new StringBuilder();
        for (AbortedTxn aborted : log.collectAbortedTransactions(from, to)) {
            text.append(aborted.producerId()).append(' ').append(aborted.firstOffset()).append(' ')
                .append(aborted.lastOffset()).append('\n');
        }
        return text + ".";
    }

    private static String clean(long firstDirtyOffset, int mapBytes) throws Exception {
        Throttler unthrottled = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", TIME);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 1 << 20, 1 << 25, 1.0, unthrottled, TIME,
            partition -> { });
        long end = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        return "" + cleaner.doClean(new LogToClean(log, firstDirtyOffset, end, false), now).getKey();
    }

    private static String flush() {
        log.flush(false);
        return "ok";
    }

    private static String close(boolean clean) throws Exception {
        if (clean) {
            log.flush(true);
            log.close();
        } else {
            log.closeHandlers();
        }
        return "ok";
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "x" + HEX.formatHex(bytes);
    }
}
