import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/** A transactional producer of Kafka's client for Java. Arguments: servers, transactional id. Each line that it reads
 *  is done and answered with a line: "done", or what was thrown. */
public class JavaTransactions {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            String line;
            while ((line = commands.readLine()) != null) {
                String[] words = line.split(" ");
                try {
                    run(producer, words);
                    System.out.println("done");
                } catch (Exception error) {
                    System.out.println(String.valueOf(error).replace('\n', ' '));
                }
            }
        }
    }

    static void run(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init": producer.initTransactions(); break;
            case "begin": producer.beginTransaction(); break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            case "offsets":
                producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(words[2], 0), new OffsetAndMetadata(Long.parseLong(words[3]))),
                        new ConsumerGroupMetadata(words[1]));
                break;
            case "send":
                // To several partitions at once.
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 3; i < words.length; i++) {
                    sent.add(producer.send(
                            new ProducerRecord<>(words[1], Integer.parseInt(words[i]), "k", words[2])));
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
                break;
            default: throw new IllegalArgumentException(words[0]);
        }
    }
}
