import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's mqadmin for many commands in one process, since starting one is most of what a command costs. Reads a
 * command per line, arguments separated by tabs; answers with the length of what the command printed, a line break, and
 * what it printed. Each command is run as the tool's own {@code main} runs it: the commands are made anew each time, for
 * some (brokerConsumeStats) keep the client that they shut down at their end.
 */
final class Admin {
    private Admin() {
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String command = commands.readLine();
        while (command != null) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream console = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(console);
            System.setErr(console);
            Commands.forget();
            MQAdminStartup.main0(command.split("\t", -1), null);
            console.flush();
            answers.println(printed.size());
            printed.writeTo(answers);
            answers.flush();
            command = commands.readLine();
        }
        Runtime.getRuntime().halt(0); // the client leaves threads behind
    }

    private static final class Commands extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }
}
