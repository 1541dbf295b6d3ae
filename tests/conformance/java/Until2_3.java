import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import kafka.cluster.Partition;
import kafka.cluster.Replica;
import org.apache.kafka.common.TopicPartition;

/** Releases in which the leader is a Replica too, and every candidate is checked at a time of its own. */
public abstract class Until2_3 extends Follower implements InvocationHandler {
    protected Replica replica;
    protected Replica leader;
    protected Partition partition;

    /** All that is asked of a clock here is the time. */
    public Object invoke(Object clock, Method method, Object[] arguments) {
        return Long.valueOf(this.nowMs);
    }

    void create() throws Exception {
        org.apache.log4j.Logger.getRootLogger().setLevel(org.apache.log4j.Level.OFF);
        Constructor constructor = Replica.class.getConstructors()[0];
        Class type = constructor.getParameterTypes()[2];
        Object clock = Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, this);
        Object name = new TopicPartition("topic", 0);
        this.partition = (Partition) Reach.bare(Partition.class);
        Reach.set(this.partition, "time", clock);
        Reach.set(this.partition, "topic", "topic");
        Reach.set(this.partition, "topicPartition", name);
        Object owner = constructor.getParameterTypes()[1] == Partition.class ? this.partition : name;
        this.replica = replica(constructor, ID, owner, clock);
        this.leader = replica(constructor, ID + 1, owner, clock);
        Reach.set(this.partition, "logger", Reach.method(Replica.class, "logger").invoke(this.replica, new Object[0]));
        Reach.set(this.partition, "bitmap$0", Boolean.TRUE);
        Reach.set(this.partition, "inSyncReplicas", new scala.collection.immutable.Set.Set1(this.replica));
    }

    private static Replica replica(Constructor constructor, int id, Object owner, Object clock) throws Exception {
        Object noLog = scala.Option.apply(null);
        return (Replica) constructor.newInstance(
            new Object[] {Integer.valueOf(id), owner, clock, Long.valueOf(0L), noLog});
    }

    static kafka.server.LogOffsetMetadata at(long offset) {
        return new kafka.server.LogOffsetMetadata(offset, -1L, -1);
    }

    long logEnd() {
        return this.replica.logEndOffset().messageOffset();
    }
}
