import java.lang.reflect.Field;
import java.lang.reflect.Method;

/** Which fetcher thread the released class gives a partition to; no manager is built, only what the method reads. */
public class FetcherIds {
    /** Lines of topic, a blank and a partition; ids between commas. */
    public String ids(Object partitions, Object fetchers) throws Exception {
        Field instance = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        instance.setAccessible(true);
        Object unsafe = instance.get(null);
        Class manager = Class.forName("kafka.server.ReplicaFetcherManager");
        Class parent = Class.forName("kafka.server.AbstractFetcherManager");
        Object made = unsafe.getClass()
            .getMethod("allocateInstance", new Class[] {Class.class}).invoke(unsafe, new Object[] {manager});
        Field[] fields = parent.getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
            fields[i].setAccessible(true);
            if (fields[i].getType() == Object.class && fields[i].getName().endsWith("lock")) {
                fields[i].set(made, new Object());
            } else if (fields[i].getType() == int.class) {
                fields[i].setInt(made, ((Number) fetchers).intValue());
            }
        }
        Method found = null;
        Method[] methods = parent.getDeclaredMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().endsWith("getFetcherId") && found == null) {
                found = methods[i];
            }
        }
        found.setAccessible(true);
        String[] lines = ((String) partitions).split("\n");
        StringBuilder ids = new StringBuilder();
        boolean pair = found.getParameterTypes().length == 2;
        for (int i = 0; i < lines.length; i++) {
            String[] parts = lines[i].split(" ");
            Object partition = Integer.valueOf(parts[1]);
            Object[] arguments = new Object[] {parts[0], partition};
            if (!pair) {
                Object key = found.getParameterTypes()[0]
                    .getConstructor(new Class[] {String.class, int.class}).newInstance(arguments);
                arguments = new Object[] {key};
            }
            ids.append(i == 0 ? "" : ",").append(found.invoke(made, arguments));
        }
        return ids.toString();
    }
}
