import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/**
 * Reads one JSON request per line from standard input and writes one JSON response per line to standard output: see
 * testing/clients/program.py. Other output goes to standard error.
 */
final class Requests {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Performs a request. The result is the response; an exception becomes an error response. */
    interface Perform {
        Object perform(JsonNode request) throws Exception;
    }

    private Requests() {}

    /** Serve requests until the input ends, then exit. */
    static void serve(Perform program, Function<Throwable, String> code) throws Exception {
        PrintStream responses = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode response = JSON.createObjectNode();
            try {
                response.set("ok", JSON.valueToTree(program.perform(JSON.readTree(line))));
            } catch (Throwable failure) {
                response.putObject("error").put("code", code.apply(failure)).put("message", String.valueOf(failure));
            }
            responses.println(JSON.writeValueAsString(response));
            responses.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
