// Runs statements of Flink SQL on a cluster in this JVM, all INSERTs as one streaming job, and ends
// with it. Compiled at run time by Janino: Java without generics or lambdas.

import java.util.HashMap;
import java.util.Map;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;

public class FlinkJob {
    /** Flink's options as key=value, "--", statements. */
    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String[] arguments) throws Exception {
        Map options = new HashMap();
        int i = 0;
        for (; !arguments[i].equals("--"); i++) {
            int equals = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        EnvironmentSettings settings =
                EnvironmentSettings.newInstance()
                        .inStreamingMode()
                        .withConfiguration(Configuration.fromMap(options))
                        .build();
        TableEnvironment environment = TableEnvironment.create(settings);
        StatementSet inserts = environment.createStatementSet();
        for (i++; i < arguments.length; i++) {
            if (arguments[i].startsWith("INSERT ")) {
                inserts.addInsertSql(arguments[i]);
            } else {
                environment.executeSql(arguments[i]);
            }
        }
        JobClient job = (JobClient) inserts.execute().getJobClient().get();
        job.getJobExecutionResult().get();
    }
}
