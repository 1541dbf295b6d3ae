import java.io.File;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.cluster.Partition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/** What leaders up to 3.9 have in common: their log, and a clock. */
public abstract class LeaderUntil3_9 extends Leader implements InvocationHandler {
    protected final TopicPartition name = new TopicPartition("topic", 0);
    protected Partition partition;
    protected Object log;

    /** The clock, and others who need not answer. */
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Exception {
        String name = method.getName();
        Class result = method.getReturnType();
        if (name.equals("milliseconds") || name.equals("hiResClockMs")) {
            return Long.valueOf(this.nowMs());
        }
        if (name.equals("nanoseconds")) {
            return Long.valueOf(this.nowUs * 1000L);
        }
        if (result == int.class) {
            return Integer.valueOf(0);
        }
        if (result == long.class) {
            return Long.valueOf(0L);
        }
        return result == boolean.class ? Boolean.FALSE : result == scala.Option.class ? scala.Option.apply(null) : null;
    }

    void openLog(String logs, String folder) throws Exception {
        Properties properties = new Properties();
        properties.put("min.insync.replicas", String.valueOf(this.minIsr));
        properties.put("segment.index.bytes", "1024");
        File place = new File(folder, "topic-0");
        place.mkdirs();
        Object companion = Reach.single(logs);
        Long start = Long.valueOf(this.start);
        Object[] given = new Object[] {place, properties, start, start, Boolean.TRUE, new ConcurrentHashMap()};
        this.log = Reach.call(Reach.longest(companion.getClass(), "apply"), companion, given, this);
    }

    Object batch(int records) {
        SimpleRecord[] values = new SimpleRecord[records];
        for (int i = 0; i < records; i++) {
            values[i] = new SimpleRecord(this.nowMs(), new byte[1]);
        }
        return MemoryRecords.withRecords(CompressionType.NONE, values);
    }

    long logEnd() throws Exception {
        return ((Long) Reach.ask(this.log, "logEndOffset")).longValue();
    }

    void close() throws Exception {
        Reach.ask(this.log, "closeHandlers");
    }
}
