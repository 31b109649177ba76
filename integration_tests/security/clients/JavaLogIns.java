import java.io.FileInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own clients for Java, for each file of their settings: write and read a record, or write for a time in ms if
 * that is above 0; say how it went.
 */
public class JavaLogIns {
    private static final TopicPartition PLACE = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        long millis = Long.parseLong(arguments[0]);
        for (int i = 1; i < arguments.length; i++) {
            Properties settings = new Properties();
            try (FileInputStream file = new FileInputStream(arguments[i])) {
                settings.load(file);
            }
            for (String end : List.of("key.", "value.")) {
                settings.put(end + "serializer", StringSerializer.class.getName());
                settings.put(end + "deserializer", StringDeserializer.class.getName());
            }
            settings.put("max.block.ms", "30000");
            System.out.println(arguments[i] + ": " + outcome(settings, arguments[i], millis));
        }
    }

    static String outcome(Properties settings, String value, long millis) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            if (millis > 0) {
                return written(producer, millis);
            }
            RecordMetadata place = producer.send(new ProducerRecord<>(PLACE.topic(), 0, "", value)).get();
            return value.equals(readAt(settings, place.offset())) ? "written and read" : "another record was read";
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
    }

    static String written(KafkaProducer<String, String> producer, long millis) throws Exception {
        long until = System.currentTimeMillis() + millis;
        while (System.currentTimeMillis() < until) {
            producer.send(new ProducerRecord<>(PLACE.topic(), 0, "", "java")).get();
            Thread.sleep(5);
        }
        double closed = 0;
        for (var each : producer.metrics().entrySet()) {
            if (each.getKey().name().equals("connection-close-total")) {
                closed = (Double) each.getValue().metricValue();
            }
        }
        return "written, connections closed " + (long) closed;
    }

    static String readAt(Properties settings, long offset) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(PLACE));
            consumer.seek(PLACE, offset);
            for (var record : consumer.poll(Duration.ofSeconds(30))) {
                return record.value();
            }
            return null;
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
