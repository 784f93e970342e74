// Compacts tables with Paimon's own Java library, as the procedure of its Spark connector
// does. Compiled at run time by the Janino that Spark carries (Java without generics or lambdas).

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.append.cluster.IncrementalClusterManager;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactCoordinator;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactTask;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactionCommitPreparation;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.options.Options;
import org.apache.paimon.Snapshot;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.SpecialFields;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.EndOfScanException;

public class TableCompactions {

    /** What incremental clustering picks: the level and the files' names for each partition. */
    public List clustered(Map catalogOptions, String name, boolean full) throws Exception {
        Catalog catalog =
                CatalogFactory.createCatalog(
                        CatalogContext.create(Options.fromMap(catalogOptions)));
        FileStoreTable table = (FileStoreTable) catalog.getTable(Identifier.fromString(name));
        Map units = new IncrementalClusterManager(table).createCompactUnits(full);
        List found = new ArrayList();
        for (Iterator i = units.values().iterator(); i.hasNext(); ) {
            CompactUnit unit = (CompactUnit) i.next();
            List names = new ArrayList();
            for (int j = 0; j < unit.files().size(); j++) {
                names.add(((DataFileMeta) unit.files().get(j)).fileName());
            }
            Collections.sort(names);
            found.add(unit.outputLevel() + " " + names);
        }
        Collections.sort(found);
        return found;
    }

    /** Compacts a table; whether there was something to do. */
    public boolean compact(Map catalogOptions, String name, boolean full) throws Exception {
        Catalog catalog =
                CatalogFactory.createCatalog(
                        CatalogContext.create(Options.fromMap(catalogOptions)));
        FileStoreTable table =
                ((FileStoreTable) catalog.getTable(Identifier.fromString(name)))
                        .copy(Collections.singletonMap("write-only", "false"));
        List messages = new ArrayList();
        if (table.coreOptions().dataEvolutionEnabled()) {
            Snapshot snapshot = table.snapshotManager().latestSnapshot();
            DataEvolutionCompactCoordinator coordinator =
                    new DataEvolutionCompactCoordinator(table, false, false, snapshot);
            try {
                while (true) {
                    List tasks = coordinator.plan();
                    for (int i = 0; i < tasks.size(); i++) {
                        messages.add(
                                ((DataEvolutionCompactTask) tasks.get(i))
                                        .doCompact(table, "java"));
                    }
                }
            } catch (EndOfScanException e) {
                // all is planned
            }
            messages.addAll(
                    new DataEvolutionCompactionCommitPreparation(table, snapshot)
                            .prepare(messages));
        } else if (table.bucketMode() == BucketMode.BUCKET_UNAWARE) {
            List tasks = new ArrayList();
            try {
                tasks = new AppendCompactCoordinator(table, false).run();
            } catch (EndOfScanException e) {
                // nothing to do
            }
            BaseAppendFileStoreWrite write =
                    (BaseAppendFileStoreWrite) table.store().newWrite("java");
            if (table.coreOptions().rowTrackingEnabled()) {
                write.withWriteType(SpecialFields.rowTypeWithRowTracking(table.rowType()));
            }
            for (int i = 0; i < tasks.size(); i++) {
                messages.add(((AppendCompactTask) tasks.get(i)).doCompact(table, write));
            }
            write.close();
        } else {
            BatchTableWrite write = table.newBatchWriteBuilder().newWrite();
            write.withIOManager(
                    org.apache.paimon.disk.IOManager.create(
                            System.getProperty("java.io.tmpdir")));
            List buckets = table.newSnapshotReader().bucketEntries();
            for (int i = 0; i < buckets.size(); i++) {
                BucketEntry entry = (BucketEntry) buckets.get(i);
                write.compact(entry.partition(), entry.bucket(), full);
            }
            messages = write.prepareCommit();
            write.close();
        }
        long before = table.snapshotManager().latestSnapshotId().longValue();
        TableCommitImpl commit = table.newCommit("java");
        commit.commit(messages);
        commit.close();
        return table.snapshotManager().latestSnapshotId().longValue() > before;
    }
}
