import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * What Apache Kafka's own classes make of a message, asked over stdin and answered over stdout, one after the other.
 *
 * <pre>
 * request   class name (UTF), version (short), bytes (int, data), JSON (int, data; may be empty)
 * answer    0 (byte), then three times int, data:
 *             the bytes, decoded and encoded again
 *             the JSON of what was decoded; records appear as their size
 *             the JSON, read and encoded; empty when there was none
 *           or 1 (byte) and an error text (int, data)
 * </pre>
 *
 * The class name is that of the message ("org.apache.kafka.common.message.FetchRequestData"), or "frame" for the frame
 * of a record of the metadata log, which is decoded and encoded again.
 */
public final class MessageOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Kind> kinds = new HashMap<>();

    /** The handles to one message class and to its JSON converter. */
    private static final class Kind {
        final MethodHandle create;
        final MethodHandle readJson;
        final MethodHandle writeJson;

        Kind(String name) throws ReflectiveOperationException {
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            Class<?> type = Class.forName(name);
            Class<?> converter = Class.forName(name + "JsonConverter");
            create = lookup.findConstructor(type, MethodType.methodType(void.class));
            readJson = lookup.findStatic(converter, "read", MethodType.methodType(type, JsonNode.class, short.class));
            writeJson = lookup.findStatic(converter, "write",
                MethodType.methodType(JsonNode.class, type, short.class, boolean.class));
        }
    }

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        MessageOracle oracle = new MessageOracle();
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException end) {
                return;
            }
            short version = in.readShort();
            byte[] data = readBlob(in);
            byte[] json = readBlob(in);
            try {
                byte[][] answer = name.equals("frame") ? frame(data) : oracle.message(name, version, data, json);
                out.writeByte(0);
                for (byte[] part : answer) {
                    writeBlob(out, part);
                }
            } catch (Throwable error) {
                out.writeByte(1);
                writeBlob(out, error.toString().getBytes(StandardCharsets.UTF_8));
            }
            // Answers leave as soon as nothing more is waiting, so that both pipelining and single questions work.
            if (in.available() == 0) {
                out.flush();
            }
        }
    }

    private byte[][] message(String name, short version, byte[] data, byte[] json) throws Throwable {
        Kind kind = kinds.get(name);
        if (kind == null) {
            kind = new Kind(name);
            kinds.put(name, kind);
        }
        Message message = (Message) kind.create.invoke();
        ByteBuffer buffer = ByteBuffer.wrap(data);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes were not read");
        }
        byte[] again = encode(message, version);
        JsonNode written = (JsonNode) kind.writeJson.invoke(message, version, false);
        byte[] fromJson = {};
        if (json.length > 0) {
            fromJson = encode((Message) kind.readJson.invoke(JSON.readTree(json), version), version);
        }
        return new byte[][] {again, JSON.writeValueAsBytes(written), fromJson};
    }

    private static byte[][] frame(byte[] data) {
        ApiMessageAndVersion record = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(data)), data.length);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(out));
        return new byte[][] {out.array(), {}, {}};
    }

    private static byte[] encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return out.array();
    }

    private static byte[] readBlob(DataInputStream in) throws IOException {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        return data;
    }

    private static void writeBlob(DataOutputStream out, byte[] data) throws IOException {
        out.writeInt(data.length);
        out.write(data);
    }
}
