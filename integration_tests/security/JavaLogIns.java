import java.io.FileInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own producer for Java, for each file of its settings: writes for a time in ms; says how it went. */
public class JavaLogIns {
    public static void main(String[] arguments) throws Exception {
        long millis = Long.parseLong(arguments[0]);
        for (int i = 1; i < arguments.length; i++) {
            Properties settings = new Properties();
            try (FileInputStream file = new FileInputStream(arguments[i])) {
                settings.load(file);
            }
            settings.put("key.serializer", StringSerializer.class.getName());
            settings.put("value.serializer", StringSerializer.class.getName());
            settings.put("max.block.ms", "20000");
            System.out.println(arguments[i] + ": " + outcome(settings, millis));
        }
    }

    static String outcome(Properties settings, long millis) {
        long until = System.currentTimeMillis() + millis;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            do {
                producer.send(new ProducerRecord<>("t", "java")).get();
                Thread.sleep(5);
            } while (System.currentTimeMillis() < until);
            double failed = 0;
            for (var each : producer.metrics().entrySet()) {
                if (each.getKey().name().equals("connection-close-total")) {
                    failed = (Double) each.getValue().metricValue();
                }
            }
            return "written, connections closed " + (long) failed;
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
    }

    /** Shows the token of the file that the login module names; Kafka's own handlers want a library more. */
    public static class TokenOfFile implements AuthenticateCallbackHandler {
        private String file;

        @Override
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
            file = (String) entries.get(0).getOptions().get("file");
        }

        @Override
        public void handle(Callback[] callbacks) throws IOException {
            String text = Files.readString(Path.of(file));
            for (Callback each : callbacks) {
                if (each instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) each).token(new Token(text));
                }
            }
        }

        @Override
        public void close() {
        }

        private static class Token implements OAuthBearerToken {
            private final String text;

            Token(String text) {
                this.text = text;
            }

            @Override
            public String value() {
                return text;
            }

            @Override
            public Set<String> scope() {
                return Set.of();
            }

            @Override
            public long lifetimeMs() {
                return System.currentTimeMillis() + 3_600_000;
            }

            @Override
            public String principalName() {
                return "carol";
            }

            @Override
            public Long startTimeMs() {
                return null;
            }
        }
    }
}
