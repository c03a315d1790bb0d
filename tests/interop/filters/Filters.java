import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Asks RocketMQ's own parser of filters. Each line of the file is an expression and then, after tabs, the properties of
 * messages as {@code name:value,...}, all in Base64. Prints a line for each: {@code refused}, or a letter per message
 * (T, F, N for null, X for an exception).
 */
public final class Filters {
    private Filters() {
    }

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] parts = line.split("\t", -1);
            System.out.println(answers(text(parts[0]), List.of(parts).subList(1, parts.length)));
        }
    }

    private static String answers(String source, List<String> messages) {
        BooleanExpression wanted;
        try {
            wanted = SelectorParser.parse(source);
        } catch (Throwable refused) {
            return "refused";
        }
        List<String> said = new ArrayList<>();
        messages.forEach(message -> said.add(answer(wanted, message)));
        return String.join("", said);
    }

    private static String answer(BooleanExpression wanted, String message) {
        Map<String, String> properties = new HashMap<>();
        for (String pair : message.isEmpty() ? new String[0] : message.split(",")) {
            String[] words = pair.split(":", -1);
            properties.put(text(words[0]), text(words[1]));
        }
        try {
            Object found = wanted.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            });
            return found == null ? "N" : (Boolean) found ? "T" : "F";
        } catch (Exception raised) {
            return "X";
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
