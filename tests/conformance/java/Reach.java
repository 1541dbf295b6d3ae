import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/** Reaching what Scala and the releases have moved about: by name, and arguments by type. */
public class Reach {
    /** An object of a class whose constructor asks for half a broker. */
    static Object bare(Class type) throws Exception {
        Field unsafe = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        return ((sun.misc.Unsafe) unsafe.get(null)).allocateInstance(type);
    }

    /** Set a field, which Scala may have given a longer name; a release need not have it. */
    static void set(Object object, String name, Object value) throws Exception {
        Field[] fields = object.getClass().getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
            if (fields[i].getName().equals(name) || fields[i].getName().endsWith("$$" + name)) {
                fields[i].setAccessible(true);
                fields[i].set(object, value);
            }
        }
    }

    /** The method whose name begins so, and is not of Scala's making; null if there is none. */
    static Method method(Class type, String name) {
        Method[] methods = type.getDeclaredMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().startsWith(name) && methods[i].getName().indexOf('$') < 0) {
                methods[i].setAccessible(true);
                return methods[i];
            }
        }
        return null;
    }

    /** The method of this name with the most arguments. */
    static Method longest(Class type, String name) {
        Method longest = null;
        Method[] methods = type.getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals(name) && (longest == null
                || methods[i].getParameterTypes().length > longest.getParameterTypes().length)) {
                longest = methods[i];
            }
        }
        return longest;
    }

    /** Whether the class's constructor takes such an argument. */
    static boolean takes(Class type, Class argument) {
        return java.util.Arrays.asList(type.getConstructors()[0].getParameterTypes()).contains(argument);
    }

    /** What a method that takes nothing answers. */
    static Object ask(Object object, String name) throws Exception {
        return object.getClass().getMethod(name, new Class[0]).invoke(object, new Object[0]);
    }

    /** Scala's one object of this name. */
    static Object single(String name) throws Exception {
        return type(name + "$").getField("MODULE$").get(null);
    }

    static Class type(String name) throws Exception {
        return Class.forName(name, true, Reach.class.getClassLoader());
    }

    static Object made(Class type, InvocationHandler handler) {
        return Proxy.newProxyInstance(Reach.class.getClassLoader(), new Class[] {type}, handler);
    }

    static Object call(Method method, Object object, Object[] given, InvocationHandler others) throws Exception {
        return method.invoke(object, fill(method.getParameterTypes(), given, others));
    }

    /** By the public constructor with the fewest arguments. */
    static Object built(Class type, Object[] given, InvocationHandler others) throws Exception {
        Constructor[] constructors = type.getConstructors();
        Constructor least = constructors[0];
        for (int i = 1; i < constructors.length; i++) {
            if (constructors[i].getParameterTypes().length < least.getParameterTypes().length) {
                least = constructors[i];
            }
        }
        return least.newInstance(fill(least.getParameterTypes(), given, others));
    }

    /** For each argument the first value given that fits and is not used yet, else one that does no harm. */
    private static Object[] fill(Class[] types, Object[] given, InvocationHandler others) throws Exception {
        Object[] arguments = new Object[types.length];
        boolean[] used = new boolean[given.length];
        for (int i = 0; i < types.length; i++) {
            int found = -1;
            for (int j = given.length - 1; j >= 0; j--) {
                if (!used[j] && boxed(types[i]).isInstance(given[j])) {
                    found = j;
                }
            }
            if (found >= 0) {
                used[found] = true;
            }
            arguments[i] = found >= 0 ? given[found] : harmless(types[i], given, others);
        }
        return arguments;
    }

    private static Class boxed(Class type) {
        return type == int.class ? Integer.class : type == long.class ? Long.class
            : type == boolean.class ? Boolean.class : type == Object.class ? Void.class : type;
    }

    private static Object harmless(Class type, Object[] given, InvocationHandler others) throws Exception {
        String name = type.getName();
        if (type == int.class) {
            return Integer.valueOf(1);
        }
        if (type == long.class) {
            return Long.valueOf(0L);
        }
        if (type == boolean.class) {
            return Boolean.FALSE;
        }
        if (type == scala.Option.class) {
            return scala.Option.apply(null);
        }
        if (type == java.util.Optional.class) {
            return java.util.Optional.empty();
        }
        if (type == scala.collection.immutable.Set.class) {
            return ask(single("scala.collection.immutable.Set"), "empty");
        }
        if (type.isEnum()) { // the newest version of the metadata
            return type.getEnumConstants()[type.getEnumConstants().length - 1];
        }
        if (name.equals("kafka.api.ApiVersion")) {
            return ask(single(name), "latestVersion");
        }
        if (name.endsWith(".RequestLocal")) {
            return ask(single(name), "NoCaching");
        }
        if (name.endsWith(".VerificationGuard")) {
            return type.getField("SENTINEL").get(null);
        }
        if (type.isInterface()) {
            return made(type, others);
        }
        if (type == Object.class || name.endsWith("LogManager") || name.endsWith("MetadataCache")) {
            return null;
        }
        return built(type, given, others);
    }
}
