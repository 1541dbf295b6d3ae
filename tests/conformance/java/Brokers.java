/** What a leader from 3.3 to 3.9 knows of the others. */
public class Brokers extends kafka.server.metadata.KRaftMetadataCache {
    private final Leader leader;

    public Brokers(Leader leader) {
        super(leader.itself);
        this.leader = leader;
    }

    public boolean isBrokerFenced(int broker) {
        return !this.leader.eligible[broker];
    }

    public boolean isBrokerShuttingDown(int broker) {
        return false;
    }

    public scala.Option getAliveBrokerEpoch(int broker) {
        return scala.Option.apply(Long.valueOf(1L));
    }
}
