/** Every term gives the members of the ISR a fresh start. */
public class From0_10_2 extends From0_9 {
    void begin(long leaderEnd, boolean leaderIsNew, boolean inIsr) throws Exception {
        this.replica.resetLastCaughtUpTime(leaderEnd, this.nowMs, inIsr ? this.nowMs : 0L);
        super.begin(leaderEnd, leaderIsNew, inIsr);
    }
}
