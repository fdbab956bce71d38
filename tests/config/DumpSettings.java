import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Writes the definitions of Apache Kafka's settings as JSON, one setting per line, without the descriptions.
 * Run as: java -cp 'LIBS/*' DumpSettings.java
 */
public class DumpSettings {
    public static void main(String[] arguments) {
        System.out.println("{\"broker\": {");
        dump(kafka.server.KafkaConfig.configDef(), DynamicBrokerConfig.dynamicConfigUpdateModes());
        System.out.println("}, \"topic\": {");
        dump(LogConfig.configDefCopy(), Map.of());
        System.out.println("}, \"group\": {");
        dump(GroupConfig.CONFIG_DEF, Map.of());
        System.out.println("}, \"group_synonyms\": {");
        String separator = " ";
        for (var entry : new TreeMap<>(GroupConfig.ALL_GROUP_CONFIG_SYNONYMS).entrySet()) {
            System.out.println(separator + quoted(entry.getKey()) + ": " + quoted(entry.getValue().orElse(null)));
            separator = ",";
        }
        System.out.println("}, \"synonyms\": {");
        separator = " ";
        for (var entry : new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).entrySet()) {
            List<String> names = entry.getValue().stream()
                .map(synonym -> "[" + quoted(synonym.name()) + ", " + synonym.converter().apply("1") + "]")
                .toList();
            System.out.println(separator + quoted(entry.getKey()) + ": " + names);
            separator = ",";
        }
        System.out.println("}}");
    }

    private static void dump(ConfigDef definition, Map<String, String> updateModes) {
        String separator = " ";
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            boolean required = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            String value = required || key.defaultValue == null ? null : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(separator + quoted(key.name) + ": ["
                + quoted(key.type.name()) + ", "
                + quoted(value) + ", "
                + (key.validator == null ? "null" : quoted(key.validator.toString())) + ", "
                + quoted(key.importance.name()) + ", "
                + quoted(updateModes.getOrDefault(key.name, "read-only")) + ", "
                + key.internalConfig + "]");
            separator = ",";
        }
    }

    private static String quoted(String text) {
        return text == null ? "null" : '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
