// A writer that commits through a REST catalog with Paimon's own Java library, in a JVM of its own.
// Compiled at run time by Janino, like PaimonTables.java: Java without generics or lambdas.

import java.util.HashMap;
import java.util.Map;

import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;

public class JavaWriter {
    /**
     * url, warehouse, token, table, first key, commits, then other options as key=value: one row (k
     * INT, v STRING) a commit. Prints each key when its commit was answered.
     */
    public static void main(String[] arguments) throws Exception {
        Map options = new HashMap();
        options.put("metastore", "rest");
        options.put("uri", arguments[0]);
        options.put("warehouse", arguments[1]);
        options.put("token.provider", "bear");
        options.put("token", arguments[2]);
        for (int i = 6; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        Catalog catalog =
                CatalogFactory.createCatalog(CatalogContext.create(Options.fromMap(options)));
        Table table = catalog.getTable(Identifier.fromString(arguments[3]));
        int first = Integer.parseInt(arguments[4]);
        int commits = Integer.parseInt(arguments[5]);
        for (int k = first; k < first + commits; k++) {
            BatchWriteBuilder builder = table.newBatchWriteBuilder();
            BatchTableWrite write = builder.newWrite();
            write.write(
                    GenericRow.of(
                            new Object[] {Integer.valueOf(k), BinaryString.fromString("java")}));
            BatchTableCommit commit = builder.newCommit();
            commit.commit(write.prepareCommit());
            write.close();
            commit.close();
            System.out.println(k);
        }
        catalog.close();
        System.exit(0);
    }
}
