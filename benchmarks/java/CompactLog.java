import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Runs Apache Kafka's log cleaner on partitions' directories: {@code CompactLog MAP_BYTES DIRECTORY...}.
 *
 * <p>The directories are compacted one after the other, so that the code is compiled for the last ones. Prints one line
 * of JSON: seconds and cpu_seconds of the fastest pass; the latter is the CPU of the whole process, including the
 * compiler.
 */
public final class CompactLog {
    public static void main(String[] arguments) throws Exception {
        int mapBytes = Integer.parseInt(arguments[0]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        double seconds = Double.MAX_VALUE;
        double cpuSeconds = Double.MAX_VALUE;
        for (int i = 1; i < arguments.length; i++) {
            UnifiedLog log = open(new File(arguments[i]), scheduler);
            log.roll();
            Throttler unthrottled = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", Time.SYSTEM);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 256 << 10, 1 << 20, 0.9, unthrottled,
                Time.SYSTEM, partition -> { });
            LogToClean toClean = new LogToClean(log, 0, log.activeSegment().baseOffset(), false);
            long began = System.nanoTime();
            double cpuBegan = cpuSeconds();
            cleaner.doClean(toClean, System.currentTimeMillis());
            cpuSeconds = Math.min(cpuSeconds, cpuSeconds() - cpuBegan);
            seconds = Math.min(seconds, (System.nanoTime() - began) / 1e9);
            log.close();
        }
        scheduler.shutdown();
        System.out.printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f}%n", seconds, cpuSeconds);
    }

    private static UnifiedLog open(File directory, KafkaScheduler scheduler) throws Exception {
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(Map.of("cleanup.policy", "compact")), 0, 0, scheduler,
            new BrokerTopicStats(), Time.SYSTEM, 60_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), false, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        return log;
    }

    private static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }
}
