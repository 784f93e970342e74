// Compactions by Paimon's own Java library, for tests: real ones, and commits of files that only move
// to another level. Compiled at run time by Janino (Java without generics or lambdas).

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.options.Options;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableCommitImpl;

public class Commits {

    private final Catalog catalog;

    public Commits(Object warehouse) {
        Map options = new HashMap();
        options.put("warehouse", warehouse);
        catalog = CatalogFactory.createCatalog(CatalogContext.create(Options.fromMap(options)));
    }

    // Commits a compaction that moves files of a snapshot to other levels. Returns "", or why it was
    // refused.
    public String move(String name, long snapshotId, List names, List levels) throws Exception {
        FileStoreTable table = (FileStoreTable) catalog.getTable(Identifier.fromString(name));
        Map before = new HashMap();
        Map after = new HashMap();
        Map found = new HashMap();
        Iterator entries =
                table.store().newScan().withSnapshot(snapshotId).plan().files().iterator();
        while (entries.hasNext()) {
            ManifestEntry entry = (ManifestEntry) entries.next();
            int at = names.indexOf(entry.file().fileName());
            if (at < 0) {
                continue;
            }
            Integer bucket = Integer.valueOf(entry.bucket());
            if (!before.containsKey(bucket)) {
                before.put(bucket, new ArrayList());
                after.put(bucket, new ArrayList());
                found.put(bucket, entry);
            }
            ((List) before.get(bucket)).add(entry.file());
            int level = ((Integer) levels.get(at)).intValue();
            ((List) after.get(bucket)).add(entry.file().upgrade(level));
        }
        List messages = new ArrayList();
        Iterator buckets = before.keySet().iterator();
        while (buckets.hasNext()) {
            Object bucket = buckets.next();
            ManifestEntry entry = (ManifestEntry) found.get(bucket);
            messages.add(
                    new CommitMessageImpl(
                            entry.partition(),
                            entry.bucket(),
                            Integer.valueOf(entry.totalBuckets()),
                            DataIncrement.emptyIncrement(),
                            new CompactIncrement(
                                    (List) before.get(bucket),
                                    (List) after.get(bucket),
                                    new ArrayList())));
        }
        TableCommitImpl commit = table.newCommit("java-" + System.nanoTime());
        try {
            commit.commit(1L, messages);
            return "";
        } catch (RuntimeException error) {
            return String.valueOf(error.getMessage());
        } finally {
            commit.close();
        }
    }

    // Compacts all buckets of a table, as the procedure does.
    public void compact(String name, boolean full, String folder) throws Exception {
        FileStoreTable table = (FileStoreTable) catalog.getTable(Identifier.fromString(name));
        Map options = new HashMap();
        options.put("write-only", "false");
        table = table.copy(options);
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        BatchTableWrite write = builder.newWrite();
        write.withIOManager(IOManager.create(folder));
        Iterator buckets = table.newSnapshotReader().bucketEntries().iterator();
        while (buckets.hasNext()) {
            BucketEntry bucket = (BucketEntry) buckets.next();
            write.compact(bucket.partition(), bucket.bucket(), full);
        }
        BatchTableCommit commit = builder.newCommit();
        commit.commit(write.prepareCommit());
        write.close();
        commit.close();
    }
}
