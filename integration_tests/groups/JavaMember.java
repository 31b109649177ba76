import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a consumer group, until its standard input ends: it prints "assigned" when it gets partitions, and
 *  partition and offset of each record, once it has committed it. A refused commit, as by an epoch that has just gone
 *  on, is tried again after the next poll, but for partitions that are another's by then. Arguments: bootstrap servers,
 *  group, topic, and for who does not try again, but prints "refused" and goes on, settings as key=value. */
public class JavaMember {
    private static volatile boolean ends = false;
    private static final List<ConsumerRecord<String, String>> read = new ArrayList<>();

    private static class Forgetting implements ConsumerRebalanceListener {
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            System.out.println("assigned");
            System.out.flush();
        }

        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            read.removeIf(each -> revoked.contains(new TopicPartition(each.topic(), each.partition())));
        }
    }

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
            consumer.subscribe(List.of(args[2]), new Forgetting());
            while (!ends) {
                consumer.poll(Duration.ofMillis(100)).forEach(read::add);
                if (read.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync();
                } catch (KafkaException refusal) {
                    if (args.length == 3) {
                        continue;
                    }
                    System.out.println("refused");
                }
                read.forEach(each -> System.out.println("read " + each.partition() + " " + each.offset()));
                read.clear();
                System.out.flush();
            }
        }
        System.out.println("closed");
    }
}
