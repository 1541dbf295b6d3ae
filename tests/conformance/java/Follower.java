import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** What a leader keeps of one follower, as a family of releases has it; plays rows of eight longs. */
public abstract class Follower {
    static final int TERM = 0, FETCH = 1;
    static final int IN_ISR = 1, LEADER_IS_NEW = 2, FIRST = 4;
    static final int COLUMNS = 8, RESULTS = 3;
    static final int ID = 2;

    /** The leader's clock. */
    protected long nowMs;

    /** The broker first hears of the follower. */
    abstract void create() throws Exception;

    /** What Partition.makeLeader does to a follower's state. */
    abstract void begin(long leaderEnd, boolean leaderIsNew, boolean inIsr) throws Exception;

    abstract void fetch(long offset, long leaderEnd, long readMs) throws Exception;

    abstract void failedFetch() throws Exception;

    abstract long lastCaughtUpMs() throws Exception;

    abstract long logEnd() throws Exception;

    abstract boolean outOfSync(long leaderEnd, long lagMs, long lagMessages) throws Exception;

    /**
     * A row is: kind; fetch offset, or flags of a term; leader's log end; ms of the read; ms when recorded;
     * then of a check: leader's log end, ms, lag time. A result is: last caught up ms, log end, out of sync.
     */
    public byte[] play(byte[] bytes, long lagMessages) throws Exception {
        ByteBuffer rows = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        int count = bytes.length / 8 / COLUMNS;
        ByteBuffer results = ByteBuffer.allocate(8 * RESULTS * count).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < count; i++) {
            int kind = (int) rows.getLong();
            long offset = rows.getLong();
            long leaderEnd = rows.getLong();
            long readMs = rows.getLong();
            this.nowMs = rows.getLong();
            if (kind == TERM) {
                if ((offset & FIRST) != 0) {
                    this.create();
                }
                this.begin(leaderEnd, (offset & LEADER_IS_NEW) != 0, (offset & IN_ISR) != 0);
            } else if (kind == FETCH) {
                this.fetch(offset, leaderEnd, readMs);
            } else {
                this.failedFetch();
            }
            leaderEnd = rows.getLong();
            this.nowMs = rows.getLong();
            boolean out = this.outOfSync(leaderEnd, rows.getLong(), lagMessages);
            results.putLong(this.lastCaughtUpMs());
            results.putLong(this.logEnd());
            results.putLong(out ? 1L : 0L);
        }
        return results.array();
    }
}
