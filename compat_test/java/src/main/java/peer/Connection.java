package peer;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

import org.redisson.Redisson;
import org.redisson.config.BaseConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Reads {@link Peer}'s options into a Redisson configuration that starts fast: few threads, few idle connections. */
final class Connection {

    private Connection() {
    }

    static Config config(String[] args) throws ReflectiveOperationException {
        String address = null;
        String prefix = null;
        boolean cluster = false;
        int connections = 0;
        for (int i = 0; i < args.length; i++) {
            switch (args[i]) {
                case "--address" -> address = args[++i];
                case "--cluster" -> cluster = true;
                case "--name-prefix" -> prefix = args[++i];
                case "--connections" -> connections = Integer.parseInt(args[++i]);
                default -> throw new IllegalArgumentException("unknown option " + args[i]);
            }
        }
        if (address == null) {
            throw new IllegalArgumentException("--address is missing");
        }
        Config config = new Config();
        config.setThreads(4);
        config.setNettyThreads(4);
        BaseConfig<?> servers = cluster ? cluster(config, address, connections) : single(config, address, connections);
        if (prefix != null) {
            mapNames(servers, prefix);
        }
        return config;
    }

    private static SingleServerConfig single(Config config, String address, int connections) {
        SingleServerConfig server = config.useSingleServer();
        server.setAddress(address);
        server.setConnectionMinimumIdleSize(1);
        server.setSubscriptionConnectionMinimumIdleSize(1);
        server.setDnsMonitoringInterval(-1);
        if (connections > 0) {
            server.setConnectionPoolSize(connections);
        }
        return server;
    }

    private static ClusterServersConfig cluster(Config config, String address, int connections) {
        ClusterServersConfig servers = config.useClusterServers();
        servers.addNodeAddress(address);
        servers.setMasterConnectionMinimumIdleSize(1);
        servers.setSlaveConnectionMinimumIdleSize(1);
        servers.setSubscriptionConnectionMinimumIdleSize(1);
        servers.setDnsMonitoringInterval(-1);
        if (connections > 0) {
            servers.setMasterConnectionPoolSize(connections);
        }
        return servers;
    }

    /** Puts prefix before all names, by reflection: setNameMapper came with 3.15.4, and its interface moved later. */
    private static void mapNames(BaseConfig<?> servers, String prefix) throws ReflectiveOperationException {
        for (Method method : BaseConfig.class.getMethods()) {
            if (!method.getName().equals("setNameMapper")) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            method.invoke(servers, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[]{type},
                    (proxy, called, args) -> switch (called.getName()) {
                        case "map" -> prefix + args[0];
                        case "unmap" -> ((String) args[0]).substring(prefix.length());
                        case "hashCode" -> System.identityHashCode(proxy);
                        case "equals" -> proxy == args[0];
                        default -> "prefix " + prefix;
                    }));
            return;
        }
        throw new UnsupportedOperationException("setNameMapper");
    }

    /** Returns the version in the jar's Maven data, because not every release fills in the manifest. */
    static String version() throws java.io.IOException {
        try (java.io.InputStream in = Redisson.class
                .getResourceAsStream("/META-INF/maven/org.redisson/redisson/pom.properties")) {
            java.util.Properties properties = new java.util.Properties();
            properties.load(in);
            return properties.getProperty("version");
        }
    }
}
