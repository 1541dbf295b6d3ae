/** Agrees to every ISR. */
public class ZooKeeper extends kafka.zk.KafkaZkClient {
    private int version;

    /** Never called: the object is made bare. */
    public ZooKeeper() {
        super(null, false, null);
    }

    public scala.Tuple2 conditionalUpdatePath(String path, byte[] data, int expected, scala.Option check) {
        this.version++;
        return new scala.Tuple2(Boolean.TRUE, Integer.valueOf(this.version));
    }
}
