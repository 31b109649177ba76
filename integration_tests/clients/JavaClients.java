import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own client for Java. Arguments: servers, features, each on a topic of its name; says what it saw. */
public class JavaClients {
    static final int RECORDS = 500;
    static final Duration POLL = Duration.ofMillis(500);
    static final long LIMIT_MS = 90_000;
    static String servers;
    static String feature;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        for (int i = 1; i < arguments.length; i++) {
            String topic = arguments[i];
            feature = topic;
            switch (feature) {
                case "compressions": compressions(topic); break;
                case "transactions": transactions(topic); break;
                case "groups": groups(topic); break;
                case "statics": statics(topic); break;
                case "admin": admin(topic); break;
                default: throw new IllegalArgumentException(feature);
            }
        }
    }

    static void say(Object line) {
        System.out.println(feature + ": " + line);
    }

    static Properties settings(Object... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        for (int i = 0; i < pairs.length; i += 2) {
            settings.put(pairs[i], pairs[i + 1]);
        }
        return settings;
    }

    static void compressions(String topic) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(settings("compression.type", codec, "linger.ms", 20))) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < RECORDS; i++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, "key" + i, codec + " " + i)));
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            }
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings())) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<String, Integer> counts = new TreeMap<>();
            long end = System.currentTimeMillis() + LIMIT_MS;
            int read = 0;
            while (read < 5 * RECORDS && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    counts.merge(record.value().split(" ")[0], 1, Integer::sum);
                    read++;
                }
            }
            say(counts);
        }
    }

    /** Consume, transform, produce: one transaction is aborted and done again. */
    static void transactions(String topic) throws Exception {
        String target = topic + "-copied";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings())) {
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(topic, i % 3, "k", "" + i)).get();
            }
        }
        Properties reading = settings("group.id", topic, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "isolation.level", "read_committed", "max.poll.records", 100);
        int copied = 0;
        boolean aborted = false;
        long end = System.currentTimeMillis() + LIMIT_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading);
                KafkaProducer<String, String> producer =
                        new KafkaProducer<>(settings("transactional.id", topic))) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            while (copied < RECORDS && System.currentTimeMillis() < end) {
                var records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.key(), record.value()));
                    positions.put(new TopicPartition(topic, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                if (!aborted) {
                    // What is not on its way yet would never be sent.
                    producer.flush();
                    producer.abortTransaction();
                    aborted = true;
                    for (TopicPartition one : records.partitions()) {
                        consumer.seek(one, records.records(one).get(0).offset());
                    }
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
        for (String level : List.of("read_committed", "read_uncommitted")) {
            say(level + " " + read(target, level).size());
        }
        say("distinct " + new TreeSet<>(read(target, "read_committed")).size());
        try (Admin admin = Admin.create(settings())) {
            long sum = 0;
            for (OffsetAndMetadata one : admin.listConsumerGroupOffsets(topic)
                    .partitionsToOffsetAndMetadata().get().values()) {
                sum += one.offset();
            }
            say("committed " + sum);
        }
    }

    static List<String> read(String topic, String level) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings("isolation.level", level))) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long limit = System.currentTimeMillis() + LIMIT_MS;
            while (System.currentTimeMillis() < limit
                    && ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
                consumer.poll(POLL).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    /** Two members share the partitions; one leaves. */
    static void groups(String topic) throws Exception {
        Properties member = settings("group.id", topic, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "heartbeat.interval.ms", 500,
                "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        KafkaConsumer<String, String> first = new KafkaConsumer<>(member);
        first.subscribe(List.of(topic));
        KafkaConsumer<String, String> second = new KafkaConsumer<>(member);
        second.subscribe(List.of(topic));
        long end = System.currentTimeMillis() + LIMIT_MS;
        int partitions = first.partitionsFor(topic).size();
        while (System.currentTimeMillis() < end) {
            first.poll(Duration.ofMillis(100));
            second.poll(Duration.ofMillis(100));
            int one = first.assignment().size();
            int other = second.assignment().size();
            if (one > 0 && other > 0 && one + other == partitions
                    && Collections.disjoint(first.assignment(), second.assignment())) {
                say("shared");
                break;
            }
        }
        second.close();
        while (System.currentTimeMillis() < end && first.assignment().size() < partitions) {
            first.poll(Duration.ofMillis(100));
        }
        say("owned " + first.assignment().size());
        first.close();
        try (Admin admin = Admin.create(settings())) {
            say("described " + admin.describeConsumerGroups(List.of(topic))
                    .all().get().get(topic).members().size());
        }
    }

    /** Of two static members one is started again: it has its part, and the other heard of nothing. */
    static void statics(String topic) throws Exception {
        int[] assigned = {0};
        ConsumerRebalanceListener counter = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                assigned[0]++;
            }
        };
        Set<TopicPartition> part;
        long end = System.currentTimeMillis() + LIMIT_MS;
        try (KafkaConsumer<String, String> first = member(topic, "one")) {
            first.subscribe(List.of(topic), counter);
            int partitions = first.partitionsFor(topic).size();
            try (KafkaConsumer<String, String> second = member(topic, "two")) {
                second.subscribe(List.of(topic));
                do {
                    first.poll(Duration.ofMillis(100));
                    second.poll(Duration.ofMillis(100));
                    part = second.assignment();
                } while (System.currentTimeMillis() < end && (part.isEmpty() || first.assignment().isEmpty()
                        || part.size() + first.assignment().size() != partitions));
            }
            int before = assigned[0];
            try (KafkaConsumer<String, String> second = member(topic, "two")) {
                second.subscribe(List.of(topic));
                do {
                    first.poll(Duration.ofMillis(100));
                    second.poll(Duration.ofMillis(100));
                } while (System.currentTimeMillis() < end && second.assignment().isEmpty());
                say("again " + second.assignment().equals(part));
            }
            say("rebalances " + (assigned[0] - before));
        }
    }

    static KafkaConsumer<String, String> member(String group, String name) {
        return new KafkaConsumer<>(settings("group.id", group, "group.instance.id", name,
                "auto.offset.reset", "earliest", "heartbeat.interval.ms", 500));
    }

    static void admin(String topic) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            say("brokers " + admin.describeCluster().nodes().get().size());
            var created = admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1)
                    .configs(Map.of("cleanup.policy", "compact"))));
            created.all().get();
            say("created " + created.numPartitions(topic).get() + " "
                    + created.replicationFactor(topic).get() + " "
                    + created.config(topic).get().get("cleanup.policy").value() + " "
                    + created.config(topic).get().get("retention.ms").source());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            say(admin.describeConfigs(List.of(resource)).all().get().get(resource)
                    .get("cleanup.policy").value());
            say("partitions "
                    + admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            say("latest " + admin.listOffsets(
                    Map.of(new TopicPartition(topic, 0), OffsetSpec.latest())).all().get()
                    .get(new TopicPartition(topic, 0)).offset());
            say("local " + admin.listOffsets(
                    Map.of(new TopicPartition(topic, 0), OffsetSpec.earliestLocal())).all().get()
                    .get(new TopicPartition(topic, 0)).offset());
            short level = admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                    .get("transaction.version").maxVersionLevel();
            admin.updateFeatures(Map.of("transaction.version",
                    new FeatureUpdate(level, FeatureUpdate.UpgradeType.UPGRADE)),
                    new UpdateFeaturesOptions()).all().get();
            say("feature " + level);
            setGroups(admin, 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
            setGroups(admin, 1, FeatureUpdate.UpgradeType.UPGRADE);
            try {
                setGroups(admin, 9, FeatureUpdate.UpgradeType.UPGRADE);
            } catch (ExecutionException refused) {
                say(refused.getCause().getClass().getSimpleName());
            }
            ConfigResource loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1");
            admin.incrementalAlterConfigs(Map.of(loggers, List.of(new AlterConfigOp(
                    new ConfigEntry("root", "ERROR"), AlterConfigOp.OpType.SET)))).all().get();
            say("logger " + admin.describeConfigs(List.of(loggers)).all().get().get(loggers)
                    .get("root").value());
            admin.deleteTopics(List.of(topic)).all().get();
            say("deleted");
        }
    }

    /** Sets the level of groups, and says which one is told afterwards. */
    static void setGroups(Admin admin, int level, FeatureUpdate.UpgradeType type) throws Exception {
        admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) level, type)),
                new UpdateFeaturesOptions()).all().get();
        var told = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("group.version");
        say("groups " + (told == null ? 0 : told.maxVersionLevel()));
    }
}
