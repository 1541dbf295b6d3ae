import java.io.File;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import kafka.cluster.DelayedOperations;
import kafka.cluster.Partition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.LeaderAndIsrRequest;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.replica.Replica;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchParams;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Partition and log of 4.1. */
public class Leader4_1 extends Leader implements InvocationHandler {
    private static final Long BROKER_EPOCH = Long.valueOf(1L);
    private static final scala.Option NONE = scala.Option.apply(null);
    private final TopicPartition name = new TopicPartition("topic", 0);
    private final Uuid id = new Uuid(1L, 2L);
    private Partition partition;
    private UnifiedLog log;
    private BrokerTopicStats stats;
    private LogOffsetMetadata[] readAt;
    private LeaderAndIsr asked;
    private CompletableFuture answer;

    /** Nobody waits for anything. */
    private static class NobodyWaits extends DelayedOperations {
        NobodyWaits(TopicPartition name) {
            super(NONE, name, null, null, null, null);
        }

        public void checkAndCompleteAll() {
        }

        public int numDelayedDelete() {
            return 0;
        }
    }

    private Object made(Class type) {
        return Proxy.newProxyInstance(Leader4_1.class.getClassLoader(), new Class[] {type}, this);
    }

    /** The clock, the metadata cache, the way to the controller, and others who need not answer. */
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Exception {
        String name = method.getName();
        if (name.equals("milliseconds") || name.equals("hiResClockMs")) {
            return Long.valueOf(this.nowMs());
        }
        if (name.equals("nanoseconds")) {
            return Long.valueOf(this.nowUs * 1000L);
        }
        if (name.equals("getAliveBrokerEpoch")) {
            return Optional.of(BROKER_EPOCH);
        }
        if (name.startsWith("apply")) { // our broker epoch
            return BROKER_EPOCH;
        }
        if (name.equals("isBrokerFenced")) {
            return Boolean.valueOf(!this.eligible[((Integer) arguments[0]).intValue()]);
        }
        if (name.equals("submit")) {
            this.asked = (LeaderAndIsr) arguments[1];
            this.answer = new CompletableFuture();
            this.asksForAnIsr();
            return this.answer;
        }
        if (name.equals("schedule")) { // the log's own tasks: never run
            return this.made(method.getReturnType());
        }
        return method.getReturnType() == boolean.class ? Boolean.FALSE : null;
    }

    void commit() {
        this.partitionEpoch++;
        this.answer.complete(this.asked.withPartitionEpoch(this.partitionEpoch));
    }

    void open(String folder, long start) throws Exception {
        Properties properties = new Properties();
        properties.put("min.insync.replicas", String.valueOf(this.minIsr));
        properties.put("segment.index.bytes", "1024");
        org.apache.kafka.common.utils.Time clock =
            (org.apache.kafka.common.utils.Time) this.made(org.apache.kafka.common.utils.Time.class);
        File place = new File(folder, "topic-0");
        place.mkdirs();
        this.stats = new BrokerTopicStats();
        this.log = UnifiedLog.create(
            place, new LogConfig(properties), start, start,
            (org.apache.kafka.server.util.Scheduler) this.made(org.apache.kafka.server.util.Scheduler.class),
            this.stats, clock, 1, new ProducerStateManagerConfig(1, false), 1, new LogDirFailureChannel(1), true,
            Optional.of(this.id));
        this.partition = new Partition(
            this.name, this.lagMs, this.itself, (scala.Function0) this.made(scala.Function0.class), clock,
            (kafka.cluster.AlterPartitionListener) this.made(kafka.cluster.AlterPartitionListener.class),
            new NobodyWaits(this.name),
            (org.apache.kafka.metadata.MetadataCache) this.made(org.apache.kafka.metadata.MetadataCache.class), null,
            (kafka.server.AlterPartitionManager) this.made(kafka.server.AlterPartitionManager.class),
            scala.Option.apply(this.id));
        this.partition.setLog(this.log, false);
        this.readAt = new LogOffsetMetadata[this.replicas];
    }

    void close() throws Exception {
        this.partition.delete();
        this.log.closeHandlers();
        this.stats.close();
    }

    void lead(int isr, boolean leaderIsNew) {
        if (leaderIsNew) {
            this.partition.makeFollower(this.state(this.another(), isr, this.leaderEpoch - 1), null, NONE, NONE);
        }
        this.partition.makeLeader(this.state(this.itself, isr, this.leaderEpoch), null, NONE, NONE);
    }

    private LeaderAndIsrRequest.PartitionState state(int leader, int isr, int epoch) {
        LeaderAndIsrRequest.PartitionState state = new LeaderAndIsrRequest.PartitionState();
        state.setTopicName("topic").setPartitionIndex(0).setLeader(leader).setLeaderEpoch(epoch);
        state.setIsr(list(isr)).setPartitionEpoch(this.partitionEpoch).setReplicas(list((1 << this.replicas) - 1));
        return state;
    }

    void append(int records) throws Exception {
        SimpleRecord[] values = new SimpleRecord[records];
        for (int i = 0; i < records; i++) {
            values[i] = new SimpleRecord(this.nowMs(), new byte[1]);
        }
        this.partition.appendRecordsToLeader(
            MemoryRecords.withRecords(Compression.NONE, values), AppendOrigin.CLIENT, 1, RequestLocal.noCaching(),
            VerificationGuard.SENTINEL);
    }

    void read(int follower, long offset) throws Exception {
        this.readAt[follower] = this.log.read(offset, 1, FetchIsolation.LOG_END, true).fetchOffsetMetadata;
    }

    void record(int follower, long offset) {
        this.partition.updateFollowerFetchState(
            this.replica(follower), this.readAt[follower], 0L, this.readMs[follower], this.readEnd[follower],
            BROKER_EPOCH.longValue());
    }

    void fetch(int follower, long offset) {
        this.ask(follower, offset, this.leaderEpoch);
    }

    void failedFetch(int follower, long offset) {
        try {
            this.ask(follower, offset, this.leaderEpoch - 1);
        } catch (org.apache.kafka.common.errors.FencedLeaderEpochException isRefused) {
            return;
        }
        throw new IllegalStateException("a fetch of a former epoch was answered");
    }

    private void ask(int follower, long offset, int epoch) {
        FetchParams request = new FetchParams(
            follower, BROKER_EPOCH.longValue(), 0L, 1, 1, FetchIsolation.LOG_END, Optional.empty());
        FetchRequest.PartitionData part = new FetchRequest.PartitionData(
            this.id, offset, 0L, 1, Optional.of(Integer.valueOf(epoch)));
        this.partition.fetchRecords(request, part, this.readMs[follower], 1, true, true);
    }

    void check() {
        this.partition.maybeShrinkIsr();
    }

    long logEnd() {
        return this.log.logEndOffset();
    }

    long highWatermark() {
        return this.log.highWatermark();
    }

    int isr() {
        return bits(this.partition.partitionState().isr());
    }

    int maximalIsr() {
        return bits(this.partition.partitionState().maximalIsr());
    }

    private static int bits(scala.collection.immutable.Set brokers) {
        int bits = 0;
        for (scala.collection.Iterator iterator = brokers.iterator(); iterator.hasNext();) {
            bits |= 1 << ((Integer) iterator.next()).intValue();
        }
        return bits;
    }

    private Replica replica(int position) {
        return (Replica) this.partition.getReplica(position).get();
    }

    long[] follower(int position) {
        org.apache.kafka.server.replica.ReplicaState state = this.replica(position).stateSnapshot();
        return new long[] {state.logEndOffset(), state.lastCaughtUpTimeMs()};
    }
}
