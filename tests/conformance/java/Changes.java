import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.IntPredicate;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.DefaultDirProvider;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** A partition in the hands of the released controller's PartitionChangeBuilder; replica p is bit p of a set. */
public class Changes {
    static final Uuid TOPIC = new Uuid(1L, 2L);

    static int[] members(long bits) {
        int[] members = new int[Long.bitCount(bits)];
        int found = 0;
        for (int p = 0; p < 64; p++) {
            if ((bits >> p & 1) != 0) {
                members[found++] = p;
            }
        }
        return members;
    }

    static List list(long bits) {
        List list = new ArrayList();
        int[] members = members(bits);
        for (int i = 0; i < members.length; i++) {
            list.add(Integer.valueOf(members[i]));
        }
        return list;
    }

    static long bits(int[] members) {
        long bits = 0;
        for (int i = 0; i < members.length; i++) {
            bits |= 1L << members[i];
        }
        return bits;
    }

    static PartitionRegistration registered(
        int replicas, int[] isr, int[] elr, int[] last, int leader, LeaderRecoveryState recovery
    ) {
        Uuid[] directories = new Uuid[replicas];
        for (int p = 0; p < replicas; p++) {
            directories[p] = DirectoryId.UNASSIGNED;
        }
        return new PartitionRegistration.Builder().setReplicas(members((1L << replicas) - 1))
            .setDirectories(directories).setIsr(isr).setElr(elr).setLastKnownElr(last)
            .setLeader(Integer.valueOf(leader)).setLeaderRecoveryState(recovery)
            .setLeaderEpoch(Integer.valueOf(0)).setPartitionEpoch(Integer.valueOf(0)).build();
    }

    static PartitionChangeBuilder builder(
        PartitionRegistration partition, final long active, int minIsr, boolean elrEnabled
    ) throws Exception {
        IntPredicate acceptable = new IntPredicate() {
            public boolean test(int replica) {
                return replica >= 0 && (active >> replica & 1) != 0;
            }
        };
        Constructor made = PartitionChangeBuilder.class.getConstructors()[0];
        Object version = MetadataVersion.latestProduction();
        if (made.getParameterTypes().length == 7) {
            return (PartitionChangeBuilder) made.newInstance(new Object[] {partition, TOPIC, Integer.valueOf(0),
                acceptable, version, Integer.valueOf(minIsr), Boolean.valueOf(elrEnabled)});
        }
        Object builder = made.newInstance(new Object[] {partition, TOPIC, Integer.valueOf(0), acceptable, version,
            Integer.valueOf(minIsr)});
        Method enable = PartitionChangeBuilder.class
            .getMethod("setEligibleLeaderReplicasEnabled", new Class[] {boolean.class});
        return (PartitionChangeBuilder) enable.invoke(builder, new Object[] {Boolean.valueOf(elrEnabled)});
    }

    /**
     * Changes of eleven longs each: ISR, ELR, last known leader, leader and recovery state before, then what is wanted.
     * Answers with the first five as they are after it.
     */
    public byte[] play(Object changes, Object replicas) throws Exception {
        ByteBuffer in = ByteBuffer.wrap((byte[]) changes).order(ByteOrder.LITTLE_ENDIAN);
        int number = in.remaining() / 88;
        int count = ((Number) replicas).intValue();
        ByteBuffer out = ByteBuffer.allocate(number * 40).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < number; i++) {
            int[] isr = members(in.getLong());
            int[] elr = members(in.getLong());
            int last = (int) in.getLong();
            int leader = (int) in.getLong();
            LeaderRecoveryState recovery = LeaderRecoveryState.of((byte) in.getLong());
            PartitionRegistration now = registered(
                count, isr, elr, last < 0 ? new int[0] : new int[] {last}, leader, recovery);
            long wanted = in.getLong();
            long active = in.getLong();
            long lost = in.getLong();
            int minIsr = (int) in.getLong();
            int election = (int) in.getLong();
            PartitionChangeBuilder builder = builder(now, active, minIsr, in.getLong() != 0);
            builder.setTargetIsr(list(wanted)).setUncleanShutdownReplicas(list(lost));
            builder.setDefaultDirProvider(new DefaultDirProvider() {
                public Uuid defaultDir(int broker) {
                    return DirectoryId.UNASSIGNED;
                }
            });
            builder.setElection(PartitionChangeBuilder.Election.values()[election]);
            Optional change = builder.build();
            if (change.isPresent()) {
                now = now.merge((PartitionChangeRecord) ((ApiMessageAndVersion) change.get()).message());
            }
            out.putLong(bits(now.isr)).putLong(bits(now.elr));
            out.putLong(now.lastKnownElr.length == 0 ? -1 : now.lastKnownElr[0]);
            out.putLong(now.leader).putLong(now.leaderRecoveryState.value());
        }
        return out.array();
    }
}
