import java.lang.reflect.Method;
import java.util.concurrent.CompletableFuture;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Partition;
import org.apache.kafka.common.message.LeaderAndIsrRequestData;

/** Partition and log from 2.4 to 3.9. A fetch is recorded as ReplicaManager or the Partition itself would do it. */
public class LeaderFrom2_4 extends LeaderUntil3_9 {
    private static final Long BROKER_EPOCH = Long.valueOf(1L);
    private Method recorded, appended, checked, made, followed;
    private LeaderAndIsr asked;
    /** Since 3.0 a future, in 2.7 a function. */
    private Object answer;

    /** The way to the controller or to ZooKeeper, too. */
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Exception {
        String name = method.getName();
        if (name.startsWith("apply")) { // our broker epoch
            return BROKER_EPOCH;
        }
        if (name.equals("expandIsr") || name.equals("shrinkIsr")) {
            this.partitionEpoch++;
            return scala.Option.apply(Integer.valueOf(this.partitionEpoch));
        }
        if (name.equals("enqueue")) {
            this.asked = (LeaderAndIsr) Reach.ask(arguments[0], "leaderAndIsr");
            this.answer = Reach.ask(arguments[0], "callback");
            this.asksForAnIsr();
            return Boolean.TRUE;
        }
        if (name.equals("submit")) {
            this.asked = (LeaderAndIsr) arguments[1];
            this.answer = new CompletableFuture();
            this.asksForAnIsr();
            return this.answer;
        }
        return super.invoke(proxy, method, arguments);
    }

    void commit() throws Exception {
        this.partitionEpoch++;
        Method with = Reach.method(LeaderAndIsr.class, "withZkVersion");
        if (with == null) {
            with = Reach.method(LeaderAndIsr.class, "withPartitionEpoch");
        }
        Object agreed = with.invoke(this.asked, new Object[] {Integer.valueOf(this.partitionEpoch)});
        if (this.answer instanceof CompletableFuture) {
            ((CompletableFuture) this.answer).complete(agreed);
        } else {
            ((scala.Function1) this.answer).apply(new scala.util.Right(agreed));
        }
    }

    void open(String folder, long start) throws Exception {
        this.openLog(Reach.method(Partition.class, "setLog").getParameterTypes()[0].getName(), folder);
        Object brokers = null;
        if (Reach.method(Partition.class, "isReplicaIsrEligible") != null) {
            brokers = Reach.type("Brokers").getConstructors()[0].newInstance(new Object[] {this});
        }
        Object[] ofPartition = new Object[] {
            this.name, Long.valueOf(this.lagMs), Integer.valueOf(this.itself), new NobodyWaits(this.name), brokers};
        this.partition = (Partition) Reach.built(Partition.class, ofPartition, this);
        Reach.method(Partition.class, "setLog").invoke(this.partition, new Object[] {this.log, Boolean.FALSE});
        this.recorded = Reach.method(Partition.class, "updateFollowerFetchState");
        this.appended = Reach.method(Partition.class, "appendRecordsToLeader");
        this.checked = Reach.method(Partition.class, "maybeShrinkIsr");
        this.made = Reach.method(Partition.class, "makeLeader");
        this.followed = Reach.method(Partition.class, "makeFollower");
    }

    void lead(int isr, boolean leaderIsNew) throws Exception {
        if (leaderIsNew) {
            Reach.call(this.followed, this.partition, this.state(this.another(), isr, this.leaderEpoch - 1), this);
        }
        Reach.call(this.made, this.partition, this.state(this.itself, isr, this.leaderEpoch), this);
    }

    private Object[] state(int leader, int isr, int epoch) throws Exception {
        LeaderAndIsrRequestData.LeaderAndIsrPartitionState state =
            new LeaderAndIsrRequestData.LeaderAndIsrPartitionState();
        state.setTopicName("topic").setPartitionIndex(0).setLeader(leader).setLeaderEpoch(epoch);
        state.setIsr(list(isr)).setReplicas(list((1 << this.replicas) - 1));
        Method version = Reach.method(state.getClass(), "setZkVersion");
        if (version == null) {
            version = Reach.method(state.getClass(), "setPartitionEpoch");
        }
        version.invoke(state, new Object[] {Integer.valueOf(this.partitionEpoch)});
        return new Object[] {state};
    }

    void append(int records) throws Exception {
        Class origins = this.appended.getParameterTypes()[1];
        Object client = origins.isEnum()
            ? origins.getField("CLIENT").get(null) : Reach.single(origins.getName() + "$Client");
        Object[] given = new Object[] {this.batch(records), client, Integer.valueOf(1)};
        Reach.call(this.appended, this.partition, given, this);
    }

    void read(int follower, long offset) {
    }

    void record(int follower, long offset) throws Exception {
        Class[] types = this.recorded.getParameterTypes();
        Object at = types[1].getConstructor(new Class[] {long.class, long.class, int.class}).newInstance(
            new Object[] {Long.valueOf(offset), Long.valueOf(this.start), Integer.valueOf(0)});
        Object who = types[0] == int.class ? (Object) Integer.valueOf(follower) : this.replica(follower);
        Object[] given = new Object[] {
            who, at, Long.valueOf(0L), Long.valueOf(this.readMs[follower]), Long.valueOf(this.readEnd[follower]),
            BROKER_EPOCH};
        Reach.call(this.recorded, this.partition, given, this);
    }

    void fetch(int follower, long offset) throws Exception {
        this.record(follower, offset);
    }

    void failedFetch(int follower, long offset) {
        // No release since 2.4 comes to the follower's state then.
    }

    void check() throws Exception {
        Reach.call(this.checked, this.partition, new Object[] {Long.valueOf(this.lagMs)}, this);
    }

    long highWatermark() throws Exception {
        return ((Long) Reach.ask(this.log, "highWatermark")).longValue();
    }

    int isr() throws Exception {
        return this.members("isr");
    }

    int maximalIsr() throws Exception {
        return this.members("maximalIsr");
    }

    /** Up to 2.6 there is one ISR; then a state has it. */
    private int members(String which) throws Exception {
        Object state = null;
        if (Reach.method(Partition.class, "partitionState") != null) {
            state = Reach.ask(this.partition, "partitionState");
        } else if (Reach.method(Partition.class, "isrState") != null) {
            state = Reach.ask(this.partition, "isrState");
        }
        return bits((scala.collection.immutable.Set) (state == null
            ? Reach.ask(this.partition, "inSyncReplicaIds") : Reach.ask(state, which)));
    }

    static int bits(scala.collection.immutable.Set brokers) {
        int bits = 0;
        for (scala.collection.Iterator iterator = brokers.iterator(); iterator.hasNext();) {
            bits |= 1 << ((Integer) iterator.next()).intValue();
        }
        return bits;
    }

    private Object replica(int position) {
        return this.partition.getReplica(position).get();
    }

    long[] follower(int position) throws Exception {
        Object state = this.replica(position);
        if (Reach.method(state.getClass(), "stateSnapshot") != null) {
            state = Reach.ask(state, "stateSnapshot");
        }
        return new long[] {
            ((Long) Reach.ask(state, "logEndOffset")).longValue(),
            ((Long) Reach.ask(state, "lastCaughtUpTimeMs")).longValue()};
    }
}
