import com.yammer.metrics.core.Meter;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import kafka.server.DelayedOperationKey;
import kafka.server.DelayedOperationPurgatory;
import kafka.server.KafkaConfig;
import kafka.zk.KafkaZkClient;
import org.apache.kafka.common.TopicPartition;

/** The broker around a Partition of 2.0 or 2.1. */
public class Manager extends kafka.server.ReplicaManager {
    private KafkaConfig settings;
    private KafkaZkClient keeper;
    private DelayedOperationPurgatory nobody;
    private Meter meter;

    /** Never called: the object is made bare. */
    public Manager() {
        super(null, null, null, null, null, null, null, null, null, null, null, null);
    }

    void set(LeaderUntil3_9 leader) throws Exception {
        Properties properties = new Properties();
        properties.put("broker.id", String.valueOf(leader.itself));
        properties.put("zookeeper.connect", "none");
        properties.put("replica.lag.time.max.ms", String.valueOf(leader.lagMs));
        properties.put("replica.fetch.wait.max.ms", "1");
        this.settings = KafkaConfig.fromProps(properties);
        this.keeper = (KafkaZkClient) Reach.bare(ZooKeeper.class);
        this.nobody = (DelayedOperationPurgatory) Reach.bare(DelayedOperationPurgatory.class);
        Reach.set(this.nobody, "timeoutTimer", Reach.made(kafka.utils.timer.Timer.class, leader)); // holds 0
        this.meter = com.yammer.metrics.Metrics.newMeter(Manager.class, "changes", "changes", TimeUnit.SECONDS);
    }

    public KafkaConfig config() {
        return this.settings;
    }

    public KafkaZkClient zkClient() {
        return this.keeper;
    }

    public kafka.log.LogManager logManager() {
        return null;
    }

    public DelayedOperationPurgatory delayedDeleteRecordsPurgatory() {
        return this.nobody;
    }

    public Meter isrExpandRate() {
        return this.meter;
    }

    public Meter isrShrinkRate() {
        return this.meter;
    }

    public void recordIsrChange(TopicPartition partition) {
    }

    public void tryCompleteDelayedFetch(DelayedOperationKey key) {
    }

    public void tryCompleteDelayedProduce(DelayedOperationKey key) {
    }

    public void tryCompleteDelayedDeleteRecords(DelayedOperationKey key) {
    }
}
