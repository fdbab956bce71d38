import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/**
 * One JSON object a line on standard input, answered by one a line on standard output: see
 * testing/clients/program.py. What else is printed goes to standard error.
 */
final class Requests {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What is done with a request; its result is the answer, whatever it throws is an error. */
    interface Perform {
        Object perform(JsonNode request) throws Exception;
    }

    private Requests() {}

    /** Answer until the input ends, which ends the process. */
    static void serve(Perform program, Function<Throwable, String> code) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(program.perform(JSON.readTree(line))));
            } catch (Throwable failure) {
                answer.putObject("error").put("code", code.apply(failure)).put("message", String.valueOf(failure));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
