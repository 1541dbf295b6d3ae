import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A released broker's Partition as leader, with a clock, a controller and a cache of metadata of ours. */
public abstract class Leader {
    static final int TERM = 0, CHECK = 1, READ = 2, RECORD = 3, FAILED_FETCH = 4, APPEND = 5, REMOVED = 6, ELIGIBLE = 7;
    static final int COLUMNS = 5;
    static final long NOTHING_IN_FLIGHT = Long.MAX_VALUE;

    protected long nowUs;
    /** Brokers are numbered by their position in the assignment. */
    protected int replicas, itself;
    protected int leaderEpoch, partitionEpoch;
    protected long lagMs;
    protected int minIsr;
    protected long start;
    protected boolean[] eligible;
    protected long[] readMs, readEnd;
    private long latencyUs;
    private long commitUs = NOTHING_IN_FLIGHT;

    /** Make the partition and its log, which begins and ends at the offset. */
    abstract void open(String folder, long startOffset) throws Exception;

    abstract void close() throws Exception;

    /** What the controller says; a new leader has been a follower in between. */
    abstract void lead(int isr, boolean leaderIsNew) throws Exception;

    abstract void append(int records) throws Exception;

    /** Read for a follower, and keep what the read tells until its state is recorded. */
    abstract void read(int follower, long offset) throws Exception;

    abstract void record(int follower, long offset) throws Exception;

    /** Read and record, as a request is handled. */
    abstract void fetch(int follower, long offset) throws Exception;

    abstract void failedFetch(int follower, long offset) throws Exception;

    abstract void check() throws Exception;

    /** The controller agrees to what was asked. */
    abstract void commit() throws Exception;

    abstract long logEnd() throws Exception;

    abstract long highWatermark() throws Exception;

    abstract int isr() throws Exception;

    abstract int maximalIsr() throws Exception;

    /** Log end of the follower, and when it was last caught up. */
    abstract long[] follower(int position) throws Exception;

    int another() {
        return (this.itself + 1) % this.replicas;
    }

    long nowMs() {
        return this.nowUs / 1000L;
    }

    /** Called when an ISR is asked for in the background; the answer comes at the end of this step at the earliest. */
    void asksForAnIsr() {
        this.commitUs = this.nowUs + this.latencyUs;
    }

    /**
     * A step is: kind, us, follower, offset (records of an append, bits of an ISR), flag. A result is: log end, high
     * watermark, ISR, maximal ISR; then of each replica log end and last caught up ms.
     */
    public byte[] play(
        byte[] bytes, String folder, long replicas, long itself, long lagMs, long minIsr, long latencyMs, long start
    ) throws Exception {
        this.replicas = (int) replicas;
        this.itself = (int) itself;
        this.lagMs = lagMs;
        this.minIsr = (int) minIsr;
        this.latencyUs = latencyMs * 1000L;
        this.eligible = new boolean[this.replicas];
        java.util.Arrays.fill(this.eligible, true);
        this.readMs = new long[this.replicas];
        this.readEnd = new long[this.replicas];
        ByteBuffer steps = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        int count = bytes.length / 8 / COLUMNS;
        ByteBuffer results = ByteBuffer.allocate(8 * (4 + 2 * this.replicas) * count).order(ByteOrder.LITTLE_ENDIAN);
        this.start = start;
        this.open(folder, start);
        for (int i = 0; i < count; i++) {
            int kind = (int) steps.getLong();
            long us = steps.getLong();
            this.commitIfDue(kind == TERM ? us - 1 : us);
            this.nowUs = us;
            this.step(kind, (int) steps.getLong(), steps.getLong(), steps.getLong() != 0);
            this.commitIfDue(us);
            results.putLong(this.logEnd()).putLong(this.highWatermark());
            results.putLong(this.isr()).putLong(this.maximalIsr());
            for (int p = 0; p < this.replicas; p++) {
                long[] state = p == this.itself ? new long[2] : this.follower(p);
                results.putLong(state[0]).putLong(state[1]);
            }
        }
        this.close();
        return results.array();
    }

    private void commitIfDue(long us) throws Exception {
        if (this.commitUs <= us) {
            this.nowUs = this.commitUs;
            this.commitUs = NOTHING_IN_FLIGHT;
            this.commit();
        }
    }

    private void step(int kind, int who, long offset, boolean flag) throws Exception {
        if (kind == TERM) {
            this.leaderEpoch += 2; // one in between, for the term of another leader
            this.heed((int) offset, flag);
        } else if (kind == CHECK) {
            this.check();
        } else if (kind == READ) {
            this.readMs[who] = this.nowMs();
            this.readEnd[who] = this.logEnd();
            this.read(who, offset);
        } else if (kind == RECORD) {
            if (flag) {
                this.fetch(who, offset);
            } else {
                this.record(who, offset);
            }
        } else if (kind == FAILED_FETCH) {
            this.failedFetch(who, offset);
        } else if (kind == APPEND) {
            this.append((int) offset);
        } else if (kind == REMOVED) {
            if ((this.maximalIsr() >> who & 1) != 0) {
                this.heed(this.isr() & ~(1 << who), false);
            }
        } else {
            this.eligible[who] = flag;
        }
    }

    /** What was asked for before is void. */
    private void heed(int isr, boolean leaderIsNew) throws Exception {
        this.partitionEpoch++;
        this.commitUs = NOTHING_IN_FLIGHT;
        this.lead(isr, leaderIsNew);
    }

    static java.util.List list(int bits) {
        java.util.List positions = new java.util.ArrayList();
        for (int p = 0; bits >> p != 0; p++) {
            if ((bits >> p & 1) != 0) {
                positions.add(Integer.valueOf(p));
            }
        }
        return positions;
    }
}
