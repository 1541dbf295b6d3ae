import kafka.server.LogReadResult;

/** The result of a read tells whether the read was at the log end. */
public class From0_9 extends Until2_3 {
    void begin(long leaderEnd, boolean leaderIsNew, boolean inIsr) throws Exception {
        if (leaderIsNew) {
            this.failedFetch();
        }
    }

    void fetch(long offset, long leaderEnd, long readMs) throws Exception {
        this.replica.updateLogReadResult(this.result(offset, leaderEnd, readMs));
    }

    void failedFetch() throws Exception {
        this.replica.updateLogReadResult(LogReadResult.UnknownLogReadResult());
    }

    /** Made field by field, since each release's constructor takes others; what stays 0 is not of this matter. */
    private LogReadResult result(long offset, long leaderEnd, long readMs) throws Exception {
        Object info = Reach.bare(kafka.server.FetchDataInfo.class);
        Reach.set(info, "fetchOffsetMetadata", at(offset));
        LogReadResult result = (LogReadResult) Reach.bare(LogReadResult.class);
        Reach.set(result, "info", info);
        Reach.set(result, "isReadFromLogEnd", Boolean.valueOf(leaderEnd - offset <= 0));
        Reach.set(result, "leaderLogEndOffset", Long.valueOf(leaderEnd));
        Reach.set(result, "fetchTimeMs", Long.valueOf(readMs));
        return result;
    }

    long lastCaughtUpMs() {
        return this.replica.lastCaughtUpTimeMs();
    }

    boolean outOfSync(long leaderEnd, long lagMs, long lagMessages) throws Exception {
        this.leader.updateLogReadResult(this.result(leaderEnd, leaderEnd, this.nowMs));
        return this.partition.getOutOfSyncReplicas(this.leader, lagMs).size() > 0;
    }
}
