import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A consumer of a share group, as long as it is let: it prints the exception that ends it. */
public class JavaUnserved {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", "shares");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(args[1]));
            for (int i = 0; i < 300; i++) {
                consumer.poll(Duration.ofMillis(200));
            }
            System.out.println("served");
        } catch (Exception end) {
            System.out.println(end.getClass().getSimpleName());
        }
    }
}
