import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own client for Java. `write`: a line of its input is a partition, a tab and a value; a line of its output
 * is the line's number, a partition and an offset. `read`: prints what is there, one record a line.
 */
public class JavaRows {
    static PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            write(arguments[1], arguments[2]);
        } else {
            read(arguments[1], arguments[2]);
        }
    }

    static Properties settings(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("linger.ms", 20);
        settings.put("compression.type", "lz4");
        return settings;
    }

    static void write(String servers, String topic) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings(servers))) {
            int number = 0;
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", 2);
                int place = number++;
                producer.send(
                        new ProducerRecord<>(topic, Integer.parseInt(parts[0]), null, parts[1]),
                        (told, error) -> {
                            if (error != null) {
                                error.printStackTrace();
                                System.exit(1);
                            }
                            out.println(place + " " + told.partition() + " " + told.offset());
                        });
            }
        }
    }

    static void read(String servers, String topic) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(servers))) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    out.println(
                            record.partition() + "\t" + record.offset() + "\t" + record.key() + "\t" + record.value());
                }
            }
        }
    }
}
