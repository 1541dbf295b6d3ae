import kafka.cluster.DelayedOperations;
import org.apache.kafka.common.TopicPartition;

/** No request waits for anything. */
public class NobodyWaits extends DelayedOperations {
    public NobodyWaits(TopicPartition name) {
        super(name, null, null, null);
    }

    public void checkAndCompleteAll() {
    }

    public void checkAndCompleteFetch() {
    }

    public int numDelayedDelete() {
        return 0;
    }
}
