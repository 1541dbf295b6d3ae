/** A fetch sets the position, and with it the time. */
public class At0_8_2 extends Until2_3 {
    void begin(long leaderEnd, boolean leaderIsNew, boolean inIsr) {
        this.failedFetch();
    }

    void fetch(long offset, long leaderEnd, long readMs) {
        this.replica.logEndOffset_$eq(at(offset));
    }

    void failedFetch() {
        this.replica.logEndOffset_$eq(kafka.server.LogOffsetMetadata$.MODULE$.UnknownOffsetMetadata());
    }

    long lastCaughtUpMs() {
        return this.replica.logEndOffsetUpdateTimeMs();
    }

    boolean outOfSync(long leaderEnd, long lagMs, long lagMessages) {
        this.leader.logEndOffset_$eq(at(leaderEnd));
        return this.partition.getOutOfSyncReplicas(this.leader, lagMs, lagMessages).size() > 0;
    }
}
