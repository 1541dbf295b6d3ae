import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Optional;
import kafka.cluster.Partition;
import org.apache.kafka.common.TopicPartition;

/** Releases in which a Replica is a follower only. Class, arguments and state moved about, hence the reflection. */
public class From2_4 extends Follower implements InvocationHandler {
    private Class type;
    private Object replica;
    private Partition partition;
    private Method record, reset, snapshot, caughtUp, end, check;
    private Constructor position;

    /** The cache of metadata, which releases since 3.7 ask for the follower's broker epoch: it knows none. */
    public Object invoke(Object cache, Method method, Object[] arguments) {
        return method.getReturnType() == Optional.class ? (Object) Optional.empty() : scala.Option.apply(null);
    }

    void create() throws Exception {
        if (this.type == null) {
            this.look();
        }
        Constructor constructor = this.type.getConstructors()[0];
        Class[] types = constructor.getParameterTypes();
        Object[] arguments = new Object[types.length];
        arguments[0] = Integer.valueOf(ID);
        arguments[1] = new TopicPartition("topic", 0);
        if (types.length > 2) {
            arguments[2] = Proxy.newProxyInstance(types[2].getClassLoader(), new Class[] {types[2]}, this);
        }
        this.replica = constructor.newInstance(arguments);
        this.partition = (Partition) Reach.bare(Partition.class);
        Reach.set(this.partition, "remoteReplicasMap", this.followers());
    }

    private void look() throws Exception {
        ClassLoader loader = Partition.class.getClassLoader();
        try {
            this.type = loader.loadClass("org.apache.kafka.server.replica.Replica");
        } catch (ClassNotFoundException isOlder) {
            this.type = loader.loadClass("kafka.cluster.Replica");
        }
        this.record = Reach.method(this.type, "updateFetchState");
        this.reset = Reach.method(this.type, "reset");
        this.snapshot = Reach.method(this.type, "stateSnapshot");
        Class state = this.snapshot == null ? this.type : this.snapshot.getReturnType();
        this.caughtUp = state.getMethod("lastCaughtUpTimeMs", new Class[0]);
        this.end = state.getMethod("logEndOffset", new Class[0]);
        this.check = Reach.method(Partition.class, "isFollowerOutOfSync");
        Class[] whole = new Class[] {long.class, long.class, int.class};
        this.position = this.record.getParameterTypes()[0].getConstructor(whole);
    }

    private Object followers() throws Exception {
        Class map = Partition.class.getDeclaredField("remoteReplicasMap").getType();
        Object followers = new java.util.concurrent.ConcurrentHashMap();
        if (!map.isInstance(followers)) { // kafka.utils.Pool, before 4.1
            followers = map.getConstructors()[0].newInstance(new Object[] {scala.Option.apply(null)});
        }
        Method put = map.getMethod("put", new Class[] {Object.class, Object.class});
        put.invoke(followers, new Object[] {Integer.valueOf(ID), this.replica});
        return followers;
    }

    void begin(long leaderEnd, boolean leaderIsNew, boolean inIsr) throws Exception {
        Long now = Long.valueOf(this.nowMs);
        Long end = Long.valueOf(leaderEnd);
        if (this.snapshot != null) {
            this.reset.invoke(
                this.replica, new Object[] {now, end, Boolean.valueOf(leaderIsNew), Boolean.valueOf(inIsr)});
            return;
        }
        this.reset.invoke(this.replica, new Object[] {end, now, inIsr ? now : Long.valueOf(0L)});
        if (leaderIsNew) {
            this.fetch(-1L, -1L, 0L);
        }
    }

    void fetch(long offset, long leaderEnd, long readMs) throws Exception {
        Object[] arguments = new Object[this.record.getParameterTypes().length];
        arguments[0] = this.position.newInstance(
            new Object[] {Long.valueOf(offset), Long.valueOf(-1L), Integer.valueOf(-1)});
        arguments[1] = Long.valueOf(0L);
        arguments[2] = Long.valueOf(readMs);
        arguments[3] = Long.valueOf(leaderEnd);
        if (arguments.length > 4) {
            arguments[4] = Long.valueOf(-1L); // last sent high watermark (2.4), no broker epoch (3.5)
        }
        this.record.invoke(this.replica, arguments);
    }

    void failedFetch() {
        // The leader does not come to its follower's state.
    }

    private Object state() throws Exception {
        return this.snapshot == null ? this.replica : this.snapshot.invoke(this.replica, new Object[0]);
    }

    long lastCaughtUpMs() throws Exception {
        return ((Long) this.caughtUp.invoke(this.state(), new Object[0])).longValue();
    }

    long logEnd() throws Exception {
        return ((Long) this.end.invoke(this.state(), new Object[0])).longValue();
    }

    boolean outOfSync(long leaderEnd, long lagMs, long lagMessages) throws Exception {
        Object[] arguments = new Object[] {
            Integer.valueOf(ID), Long.valueOf(leaderEnd), Long.valueOf(this.nowMs), Long.valueOf(lagMs)};
        return ((Boolean) this.check.invoke(this.partition, arguments)).booleanValue();
    }
}
