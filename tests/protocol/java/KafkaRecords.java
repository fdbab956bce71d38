import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;

/**
 * Apache Kafka's record classes, as the reference for the tests of record batches.
 *
 * read FILE: one line for each batch in the file and one for each record in it, as text.
 * write CODEC LEVEL(or -) RECORDS OUT: the records (lines as `read` prints them, without offsets) as one batch.
 */
public final class KafkaRecords {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < args.length; ) {
            if (args[i].equals("read")) {
                read(Path.of(args[i + 1]), Path.of(args[i + 2]));
                i += 3;
            } else if (args[i].equals("write")) {
                write(args[i + 1], args[i + 2], Path.of(args[i + 3]), Path.of(args[i + 4]));
                i += 5;
            } else {
                throw new IllegalArgumentException(args[i]);
            }
        }
    }

    private static void read(Path file, Path out) throws Exception {
        StringBuilder text = new StringBuilder();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            text.append(String.join(" ", "batch", "" + batch.baseOffset(), "" + batch.lastOffset(),
                "" + batch.partitionLeaderEpoch(), batch.compressionType().name, batch.timestampType().name,
                "" + batch.maxTimestamp(), "" + batch.producerId(), "" + batch.producerEpoch(),
                "" + batch.baseSequence(), "" + batch.lastSequence(), "" + batch.isTransactional(),
                "" + batch.isControlBatch(), "" + batch.deleteHorizonMs().orElse(-1), "" + batch.countOrNull()));
            text.append('\n');
            for (Record record : batch) {
                text.append("record ").append(record.offset()).append(' ').append(line(record)).append('\n');
            }
        }
        Files.writeString(out, text);
    }

    private static String line(Record record) {
        StringJoiner line = new StringJoiner(" ");
        line.add("" + record.timestamp()).add(hex(record.key())).add(hex(record.value()));
        for (Header header : record.headers()) {
            line.add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + hex(header.value()));
        }
        return line.toString();
    }

    private static void write(String codec, String level, Path in, Path out) throws Exception {
        List<SimpleRecord> records = new ArrayList<>();
        for (String line : Files.readAllLines(in)) {
            String[] words = line.split(" ");
            List<Header> headers = new ArrayList<>();
            for (int i = 3; i < words.length; i++) {
                String[] pair = words[i].split("=", -1);
                headers.add(new RecordHeader(new String(HEX.parseHex(pair[0]), StandardCharsets.UTF_8), bytes(pair[1])));
            }
            records.add(new SimpleRecord(Long.parseLong(words[0]), bytes(words[1]), bytes(words[2]),
                headers.toArray(new Header[0])));
        }
        MemoryRecords built = MemoryRecords.withRecords((byte) 2, 0L, compression(codec, level),
            TimestampType.CREATE_TIME, records.toArray(new SimpleRecord[0]));
        ByteBuffer buffer = built.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(out, bytes);
    }

    private static Compression compression(String codec, String level) {
        if (level.equals("-")) {
            return Compression.of(CompressionType.forName(codec)).build();
        }
        int number = Integer.parseInt(level);
        return switch (codec) {
            case "gzip" -> Compression.gzip().level(number).build();
            case "lz4" -> Compression.lz4().level(number).build();
            case "zstd" -> Compression.zstd().level(number).build();
            default -> throw new IllegalArgumentException(codec);
        };
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return hex(bytes);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : "x" + HEX.formatHex(bytes);
    }

    private static byte[] bytes(String word) {
        return word.equals("null") ? null : HEX.parseHex(word.substring(1));
    }
}
