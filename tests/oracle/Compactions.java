// What Paimon's Java library does with the files of a bucket: the files of each rewrite and upgrade,
// in its own words, without any file. Compiled at run time by the Janino that Spark carries (Java
// without generics or lambdas).

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.apache.paimon.compact.CompactResult;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.deletionvectors.BucketedDvMaintainer;
import org.apache.paimon.io.RecordLevelExpire;
import org.apache.paimon.operation.metrics.CompactionMetrics;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.FileSource;
import org.apache.paimon.mergetree.Levels;
import org.apache.paimon.mergetree.SortedRun;
import org.apache.paimon.mergetree.compact.CompactRewriter;
import org.apache.paimon.mergetree.compact.CompactStrategy;
import org.apache.paimon.mergetree.compact.EarlyFullCompaction;
import org.apache.paimon.mergetree.compact.ForceUpLevel0Compaction;
import org.apache.paimon.mergetree.compact.MergeTreeCompactManager;
import org.apache.paimon.mergetree.compact.UniversalCompaction;
import org.apache.paimon.stats.SimpleStats;

public class Compactions {

    /** Keys are whole numbers. */
    public static class ByFirstColumn implements Comparator {
        public int compare(Object a, Object b) {
            return Integer.compare(((InternalRow) a).getInt(0), ((InternalRow) b).getInt(0));
        }
    }

    /** Notes what it is asked for and makes nothing. */
    public static class Notes implements CompactRewriter {
        private final List lines;

        public Notes(List lines) {
            this.lines = lines;
        }

        public CompactResult rewrite(int outputLevel, boolean dropDelete, List sections) {
            List names = new ArrayList();
            for (int i = 0; i < sections.size(); i++) {
                List section = (List) sections.get(i);
                List runs = new ArrayList();
                for (int j = 0; j < section.size(); j++) {
                    List files = ((SortedRun) section.get(j)).files();
                    StringBuilder run = new StringBuilder();
                    for (int k = 0; k < files.size(); k++) {
                        run.append(k == 0 ? "" : "+");
                        run.append(((DataFileMeta) files.get(k)).fileName());
                    }
                    runs.add(run.toString());
                }
                Collections.sort(runs);
                names.add(String.join("|", runs));
            }
            this.lines.add("rewrite " + outputLevel + " " + dropDelete + " " + String.join(" ", names));
            return new CompactResult();
        }

        public CompactResult upgrade(int outputLevel, DataFileMeta file) {
            this.lines.add("upgrade " + outputLevel + " " + file.fileName());
            return new CompactResult();
        }

        public void close() {}
    }

    /**
     * The rewrites and upgrades of one compaction. A file is {name, level, size, least key, greatest
     * key, greatest sequence number, deleted rows or -1}. `options` are the trigger, the number of
     * levels, the percentages of size amplification and size ratio, and two thresholds or -1.
     */
    public List steps(
            List files, List options, boolean full, boolean forceUp, boolean rewriteAll, long minSize)
            throws Exception {
        List metas = new ArrayList();
        for (int i = 0; i < files.size(); i++) {
            List file = (List) files.get(i);
            long deleted = number(file, 6);
            metas.add(
                    DataFileMeta.create(
                            (String) file.get(0),
                            number(file, 2),
                            1000L,
                            BinaryRow.singleColumn((int) number(file, 3)),
                            BinaryRow.singleColumn((int) number(file, 4)),
                            SimpleStats.EMPTY_STATS,
                            SimpleStats.EMPTY_STATS,
                            0L,
                            number(file, 5),
                            0L,
                            (int) number(file, 1),
                            deleted < 0 ? null : Long.valueOf(deleted),
                            null,
                            FileSource.APPEND,
                            null,
                            null,
                            null));
        }
        EarlyFullCompaction early =
                new EarlyFullCompaction(null, threshold(options, 4), threshold(options, 5));
        UniversalCompaction universal =
                new UniversalCompaction(
                        (int) number(options, 2),
                        (int) number(options, 3),
                        (int) number(options, 0),
                        early,
                        null);
        CompactStrategy strategy =
                forceUp
                        ? (CompactStrategy) new ForceUpLevel0Compaction(universal, null)
                        : (CompactStrategy) universal;
        Comparator comparator = new ByFirstColumn();
        Levels levels = new Levels(comparator, metas, (int) number(options, 1));
        List lines = new ArrayList();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        try {
            MergeTreeCompactManager manager =
                    new MergeTreeCompactManager(
                            executor,
                            levels,
                            strategy,
                            comparator,
                            minSize,
                            1000,
                            (CompactRewriter) new Notes(lines),
                            (CompactionMetrics.Reporter) null,
                            (BucketedDvMaintainer) null,
                            false,
                            false,
                            (RecordLevelExpire) null,
                            rewriteAll,
                            false,
                            "");
            manager.triggerCompaction(full);
            manager.getCompactionResult(true);
        } finally {
            executor.shutdownNow();
        }
        return lines;
    }

    private static long number(List values, int at) {
        return ((Number) values.get(at)).longValue();
    }

    private static Long threshold(List options, int at) {
        long value = number(options, at);
        return value < 0 ? null : Long.valueOf(value);
    }
}
