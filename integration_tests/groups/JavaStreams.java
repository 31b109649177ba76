import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Kafka Streams with group.protocol=streams, as long as it is let: it prints the exception that ends it. */
public class JavaStreams {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", "streams");
        settings.put("group.protocol", "streams");
        settings.put("state.dir", args[2]);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(args[1]).foreach((key, value) -> { });
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(end -> {
            System.out.println(end.getCause().getClass().getSimpleName());
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        for (int i = 0; i < 300 && !streams.state().hasCompletedShutdown(); i++) {
            Thread.sleep(200);
        }
        streams.close();
    }
}
