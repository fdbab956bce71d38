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
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Decodes and encodes messages with Apache Kafka's classes. Reads requests from stdin, writes responses to stdout.
 *
 * <pre>
 * request   class name (UTF), version (short), bytes (int, data), JSON (int, data; may be empty)
 * response  0 (byte), then three times int, data:
 *             the bytes, decoded and encoded again
 *             the decoded message as JSON; records are replaced by their size
 *             the JSON, read and encoded; empty when there was none
 *           or 1 (byte) and an error text (int, data)
 * </pre>
 *
 * The class name is that of the message ("org.apache.kafka.common.message.FetchRequestData"), or one of these:
 * "frame" for the frame of a record of the metadata log, which is decoded and encoded again; "errors" and "headers" for
 * Apache Kafka's tables of error codes and of header versions, as lines of text.
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
                byte[][] response = switch (name) {
                    case "frame" -> frame(data);
                    case "errors" -> text(errors());
                    case "headers" -> text(headers());
                    case "listeners" -> text(listeners());
                    default -> oracle.message(name, version, data, json);
                };
                out.writeByte(0);
                for (byte[] part : response) {
                    writeBlob(out, part);
                }
            } catch (Throwable error) {
                out.writeByte(1);
                writeBlob(out, error.toString().getBytes(StandardCharsets.UTF_8));
            }
            // Responses are flushed when no more input is available, so that both pipelined and single requests work.
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
        ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(data));
        ApiMessageAndVersion record = MetadataRecordSerde.INSTANCE.read(in, data.length);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(out));
        return new byte[][] {out.array(), {}, {}};
    }

    /** Name, code, and whether clients retry the request. */
    private static String errors() {
        StringBuilder lines = new StringBuilder();
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            lines.append(error.name()).append(' ').append(error.code()).append(' ').append(retriable).append('\n');
        }
        return lines.toString();
    }

    /** API key, version, and the header versions of its request and response. */
    private static String headers() {
        StringBuilder lines = new StringBuilder();
        for (ApiKeys api : ApiKeys.values()) {
            lines.append(api.name()).append(' ').append(api.id);
            if (api.hasValidVersion()) {
                for (short version = api.oldestVersion(); version <= api.latestVersion(); version++) {
                    lines.append(' ').append(version).append(':').append(api.requestHeaderVersion(version))
                        .append(':').append(api.responseHeaderVersion(version));
                }
            }
            lines.append('\n');
        }
        return lines.toString();
    }

    /** API key, and whether brokers and controllers serve it. */
    private static String listeners() {
        StringBuilder lines = new StringBuilder();
        for (ApiKeys api : ApiKeys.values()) {
            lines.append(api.name()).append(' ').append(api.inScope(ListenerType.BROKER)).append(' ')
                .append(api.inScope(ListenerType.CONTROLLER)).append('\n');
        }
        return lines.toString();
    }

    private static byte[][] text(String text) {
        return new byte[][] {text.getBytes(StandardCharsets.UTF_8), {}, {}};
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
