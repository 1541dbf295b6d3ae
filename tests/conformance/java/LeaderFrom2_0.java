import java.lang.reflect.Method;
import kafka.cluster.Partition;
import kafka.cluster.Replica;
import kafka.server.FetchDataInfo;
import kafka.server.LogOffsetMetadata;
import kafka.server.LogReadResult;
import org.apache.kafka.common.requests.LeaderAndIsrRequest;
import org.apache.kafka.common.utils.Time;

/** Partition and log from 2.0 to 2.1; the leader is a Replica, too. Any read is recorded, as ReplicaManager does it. */
public class LeaderFrom2_0 extends LeaderUntil3_9 {
    private Replica local;
    private Method appended;

    void open(String folder, long start) throws Exception {
        org.apache.log4j.Logger.getRootLogger().setLevel(org.apache.log4j.Level.OFF);
        this.openLog("kafka.log.Log", folder);
        // A new log begins at 0, whatever it is told.
        Reach.call(Reach.longest(this.log.getClass(), "truncateFullyAndStartAt"), this.log,
            new Object[] {Long.valueOf(start)}, this);
        Manager manager = (Manager) Reach.bare(Manager.class);
        manager.set(this);
        Object[] given = new Object[] {
            this.name, this.name.topic(), Long.valueOf(this.lagMs),
            Integer.valueOf(Reach.takes(Partition.class, this.name.getClass()) ? this.itself : 0), manager,
            manager.zkClient()};
        this.partition = (Partition) Reach.built(Partition.class, given, this);
        Time clock = (Time) Reach.made(Time.class, this);
        this.local = new Replica(this.itself, this.name, clock, start, scala.Option.apply((kafka.log.Log) this.log));
        this.partition.addReplicaIfNotExists(this.local);
        this.appended = Reach.method(Partition.class, "appendRecordsToLeader");
    }

    void lead(int isr, boolean leaderIsNew) {
        if (leaderIsNew) {
            this.partition.makeFollower(0, this.state(this.another(), isr, this.leaderEpoch - 1), 0);
        }
        this.partition.makeLeader(0, this.state(this.itself, isr, this.leaderEpoch), 0);
    }

    private LeaderAndIsrRequest.PartitionState state(int leader, int isr, int epoch) {
        return new LeaderAndIsrRequest.PartitionState(
            0, leader, epoch, list(isr), this.partitionEpoch, list((1 << this.replicas) - 1), false);
    }

    void append(int records) throws Exception {
        Object[] given = new Object[] {this.batch(records), Boolean.TRUE, Integer.valueOf(1)};
        Reach.call(this.appended, this.partition, given, this);
    }

    void read(int follower, long offset) {
    }

    void record(int follower, long offset) throws Exception {
        Object info = Reach.bare(FetchDataInfo.class);
        Reach.set(info, "fetchOffsetMetadata", new LogOffsetMetadata(offset, this.start, 0));
        LogReadResult result = (LogReadResult) Reach.bare(LogReadResult.class);
        Reach.set(result, "info", info);
        Reach.set(result, "leaderLogEndOffset", Long.valueOf(this.readEnd[follower]));
        Reach.set(result, "fetchTimeMs", Long.valueOf(this.readMs[follower]));
        this.partition.updateReplicaLogReadResult(this.replica(follower), result);
    }

    void fetch(int follower, long offset) throws Exception {
        this.record(follower, offset);
    }

    void failedFetch(int follower, long offset) {
        this.partition.updateReplicaLogReadResult(this.replica(follower), LogReadResult.UnknownLogReadResult());
    }

    void check() {
        this.partition.maybeShrinkIsr(this.lagMs);
    }

    void commit() {
        throw new IllegalStateException("an ISR is written at once");
    }

    long highWatermark() {
        return this.local.highWatermark().messageOffset();
    }

    int isr() {
        int bits = 0;
        for (scala.collection.Iterator members = this.partition.inSyncReplicas().iterator(); members.hasNext();) {
            bits |= 1 << ((Replica) members.next()).brokerId();
        }
        return bits;
    }

    int maximalIsr() {
        return this.isr();
    }

    private Replica replica(int position) {
        return (Replica) this.partition.getReplica(position).get();
    }

    long[] follower(int position) {
        Replica replica = this.replica(position);
        return new long[] {replica.logEndOffset().messageOffset(), replica.lastCaughtUpTimeMs()};
    }
}
