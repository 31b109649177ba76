import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a consumer group, until its standard input ends: it prints partition and offset of each record, once it
 *  has committed it. Arguments: bootstrap servers, group, topic, and for who does not end when a commit is refused, but
 *  prints "refused" and goes on, settings as key=value. */
public class JavaMember {
    private static volatile boolean ends = false;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "20");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Thread waiting = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ignored) {
            }
            ends = true;
        });
        waiting.setDaemon(true);
        waiting.start();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(args[2]));
            while (!ends) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync();
                } catch (KafkaException refusal) {
                    if (args.length == 3) {
                        throw refusal;
                    }
                    System.out.println("refused");
                }
                records.forEach(each -> System.out.println("read " + each.partition() + " " + each.offset()));
                System.out.flush();
            }
        }
        System.out.println("closed");
    }
}
