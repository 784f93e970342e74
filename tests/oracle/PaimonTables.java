// Reads and writes tables with Paimon's own Java library, for tests. Compiled at run time by the
// Janino that Spark carries (Java without generics or lambdas), because a call over py4j for every
// value would take minutes. Rows cross as pickles; java_reader.py is the other side.

import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import net.razorvine.pickle.Pickler;
import net.razorvine.pickle.Unpickler;

import org.apache.paimon.CoreOptions;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.catalog.PropertyChange;
import org.apache.paimon.codegen.CodeGenUtils;
import org.apache.paimon.codegen.Projection;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.RowKeyExtractor;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.data.variant.GenericVariant;
import org.apache.paimon.data.variant.Variant;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypeRoot;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.LocalZonedTimestampType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.types.TimestampType;

public class PaimonTables {
    private static final int ROWS_A_PICKLE = 5000;
    private final Catalog catalog;

    public PaimonTables(Map options) {
        this.catalog = CatalogFactory.createCatalog(CatalogContext.create(Options.fromMap(options)));
    }

    /** Writes all rows of a table to a file, as pickled lists of rows, and returns their number. */
    public long dump(String name, Map options, String file) throws Exception {
        Table table = this.catalog.getTable(Identifier.fromString(name)).copy(options);
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        TableRead read = builder.newRead();
        List splits = builder.newScan().plan().splits();
        OutputStream out = new BufferedOutputStream(new FileOutputStream(file));
        Pickler pickler = new Pickler(false);
        List rows = new ArrayList();
        long count = 0;
        for (int s = 0; s < splits.size(); s++) {
            RecordReader reader = read.createReader((Split) splits.get(s));
            RecordReader.RecordIterator batch = reader.readBatch();
            while (batch != null) {
                InternalRow row = (InternalRow) batch.next();
                while (row != null) {
                    rows.add(fields(row, type));
                    count++;
                    if (rows.size() == ROWS_A_PICKLE) {
                        out.write(pickler.dumps(rows));
                        rows = new ArrayList();
                    }
                    row = (InternalRow) batch.next();
                }
                batch.releaseBatch();
                batch = reader.readBatch();
            }
            reader.close();
        }
        out.write(pickler.dumps(rows));
        out.close();
        return count;
    }

    /**
     * For each condition (column, operator, literals) the first column, an INT, of the rows that a
     * read with it gives: readers may leave out what does not meet it, and need not.
     */
    public List left(String name, byte[] pickled) throws Exception {
        Table table = this.catalog.getTable(Identifier.fromString(name));
        RowType type = table.rowType();
        PredicateBuilder predicates = new PredicateBuilder(type);
        List conditions = (List) new Unpickler().loads(pickled);
        List found = new ArrayList();
        for (int c = 0; c < conditions.size(); c++) {
            Object[] condition = (Object[]) conditions.get(c);
            int field = type.getFieldIndex((String) condition[0]);
            List literals = new ArrayList();
            for (int i = 0; i < ((List) condition[2]).size(); i++) {
                literals.add(internal(((List) condition[2]).get(i), type.getTypeAt(field)));
            }
            ReadBuilder builder = table.newReadBuilder().withFilter(
                    predicate(predicates, field, (String) condition[1], literals));
            TableRead read = builder.newRead();
            List splits = builder.newScan().plan().splits();
            List ids = new ArrayList();
            for (int s = 0; s < splits.size(); s++) {
                RecordReader reader = read.createReader((Split) splits.get(s));
                RecordReader.RecordIterator batch = reader.readBatch();
                while (batch != null) {
                    InternalRow row = (InternalRow) batch.next();
                    while (row != null) {
                        ids.add(Integer.valueOf(row.getInt(0)));
                        row = (InternalRow) batch.next();
                    }
                    batch.releaseBatch();
                    batch = reader.readBatch();
                }
                reader.close();
            }
            found.add(ids);
        }
        return found;
    }

    private static Predicate predicate(
            PredicateBuilder predicates, int field, String operator, List literals) {
        Object first = literals.isEmpty() ? null : literals.get(0);
        if (operator.equals("=")) {
            return predicates.equal(field, first);
        } else if (operator.equals("<>")) {
            return predicates.notEqual(field, first);
        } else if (operator.equals("<")) {
            return predicates.lessThan(field, first);
        } else if (operator.equals("<=")) {
            return predicates.lessOrEqual(field, first);
        } else if (operator.equals(">")) {
            return predicates.greaterThan(field, first);
        } else if (operator.equals(">=")) {
            return predicates.greaterOrEqual(field, first);
        } else if (operator.equals("is null")) {
            return predicates.isNull(field);
        } else if (operator.equals("is not null")) {
            return predicates.isNotNull(field);
        } else if (operator.equals("in")) {
            return predicates.in(field, literals);
        }
        throw new IllegalArgumentException(operator);
    }

    /** Writes the pickled rows in one batch commit; kinds are null or one short string a row. */
    public void write(String name, byte[] pickled, List kinds, Map overwrite) throws Exception {
        commit(prepare(name, pickled, kinds, overwrite));
    }

    /** Writes the pickled rows and returns what is to be committed. */
    public Object[] prepare(String name, byte[] pickled, List kinds, Map overwrite)
            throws Exception {
        Table table = this.catalog.getTable(Identifier.fromString(name));
        List rows = generic(table.rowType(), pickled);
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        if (overwrite != null) {
            builder = builder.withOverwrite(overwrite);
        }
        BatchTableWrite write = builder.newWrite();
        write.withIOManager(
                org.apache.paimon.disk.IOManager.create(System.getProperty("java.io.tmpdir")));
        boolean dynamic = ((FileStoreTable) table).bucketMode() == BucketMode.HASH_DYNAMIC;
        HashBucketAssigner assigner = dynamic ? assigner((FileStoreTable) table) : null;
        RowPartitionKeyExtractor extractor =
                new RowPartitionKeyExtractor(((FileStoreTable) table).schema());
        for (int i = 0; i < rows.size(); i++) {
            GenericRow row = (GenericRow) rows.get(i);
            if (kinds != null) {
                row.setRowKind(RowKind.fromShortString((String) kinds.get(i)));
            }
            if (dynamic) {
                int hash = extractor.trimmedPrimaryKey(row).hashCode();
                write.write(row, assigner.assign(extractor.partition(row), hash));
            } else {
                write.write(row);
            }
        }
        List messages = write.prepareCommit();
        write.close();
        return new Object[] {builder, messages};
    }

    /** What an engine with one task gives the buckets of new keys by. */
    private static HashBucketAssigner assigner(FileStoreTable table) {
        CoreOptions options = table.coreOptions();
        return new HashBucketAssigner(
                table.snapshotManager(),
                "a test",
                table.store().newIndexFileHandler(),
                1,
                1,
                0,
                options.dynamicBucketTargetRowNum(),
                options.dynamicBucketMaxBuckets());
    }

    /** Commits what was prepared. */
    public void commit(Object[] prepared) throws Exception {
        BatchTableCommit commit = ((BatchWriteBuilder) prepared[0]).newCommit();
        try {
            commit.commit((List) prepared[1]);
        } finally {
            commit.close();
        }
    }

    /** Expires snapshots, and changelogs that outlive them, by the table's options. */
    public void expire(String name, Map options) throws Exception {
        FileStoreTable table =
                (FileStoreTable) this.catalog.getTable(Identifier.fromString(name)).copy(options);
        ExpireConfig config = table.coreOptions().expireConfig();
        table.newExpireSnapshots().config(config).expire();
        if (table.coreOptions().changelogLifecycleDecoupled()) {
            table.newExpireChangelog().config(config).expire();
        }
    }

    /** Removes all rows, branches, tags, changelogs and snapshots but the last. */
    public void purge(String name) throws Exception {
        ((FileStoreTable) this.catalog.getTable(Identifier.fromString(name))).purgeFiles();
    }

    /** Merges a table's manifests. */
    public void compactManifests(String name) throws Exception {
        FileStoreTable table =
                (FileStoreTable) this.catalog.getTable(Identifier.fromString(name));
        org.apache.paimon.table.sink.BatchTableCommit commit =
                table.newBatchWriteBuilder().newCommit();
        commit.compactManifests();
        commit.close();
    }

    /** Drops partitions by the table's options and the dynamic `options`; how many. */
    public int expirePartitions(String name, Map options) throws Exception {
        FileStoreTable table =
                (FileStoreTable) this.catalog.getTable(Identifier.fromString(name)).copy(options);
        List dropped = table.store().newPartitionExpire("", table).expire(Long.MAX_VALUE);
        return dropped == null ? 0 : dropped.size();
    }

    /** Rolls a table back to a snapshot. */
    public void rollBack(String name, long snapshot) throws Exception {
        this.catalog.getTable(Identifier.fromString(name)).rollbackTo(snapshot);
    }

    /** Gives a table one column of its own, in place of all that it had. */
    public void replace(String name, String column) throws Exception {
        Schema schema = Schema.newBuilder().column(column, DataTypes.INT()).build();
        this.catalog.replaceTable(Identifier.fromString(name), schema, false);
    }

    /** Creates a database as Spark does, and changes its properties. */
    public void createDatabase(String name, Map properties, Map changes) throws Exception {
        this.catalog.createDatabase(name, false, properties);
        List set = new ArrayList();
        for (Object key : changes.keySet()) {
            String value = (String) changes.get(key);
            set.add(value == null
                    ? PropertyChange.removeProperty((String) key)
                    : PropertyChange.setProperty((String) key, value));
        }
        this.catalog.alterDatabase(name, set, false);
    }

    /** A database's options. */
    public Map database(String name) throws Exception {
        return this.catalog.getDatabase(name).options();
    }

    /** Gives columns, or parts of them (`a.element`), new types. */
    public void retype(String name, List columns, List types) throws Exception {
        List changes = new ArrayList();
        for (int i = 0; i < columns.size(); i++) {
            String[] path = ((String) columns.get(i)).split("\\.");
            DataType type = DataTypeJsonParser.parseAtomicTypeSQLString((String) types.get(i));
            changes.add(SchemaChange.updateColumnType(path, type, true));
        }
        this.catalog.alterTable(Identifier.fromString(name), changes, false);
    }

    /** The hash codes of the binary rows of some columns, as bucket keys are hashed. */
    public List hashes(String name, List columns, byte[] pickled) throws Exception {
        RowType type = this.catalog.getTable(Identifier.fromString(name)).rowType();
        int[] mapping = new int[columns.size()];
        for (int i = 0; i < mapping.length; i++) {
            mapping[i] = type.getFieldIndex((String) columns.get(i));
        }
        Projection projection = CodeGenUtils.newProjection(type, mapping);
        List rows = generic(type, pickled);
        List result = new ArrayList();
        for (int i = 0; i < rows.size(); i++) {
            result.add(Integer.valueOf(projection.apply((InternalRow) rows.get(i)).hashCode()));
        }
        return result;
    }

    /** The bucket that Java's writers would put each row into. */
    public List buckets(String name, byte[] pickled) throws Exception {
        FileStoreTable table =
                (FileStoreTable) this.catalog.getTable(Identifier.fromString(name));
        RowKeyExtractor extractor = table.createRowKeyExtractor();
        List rows = generic(table.rowType(), pickled);
        List result = new ArrayList();
        for (int i = 0; i < rows.size(); i++) {
            extractor.setRecord((InternalRow) rows.get(i));
            result.add(Integer.valueOf(extractor.bucket()));
        }
        return result;
    }

    private static List generic(RowType type, byte[] pickled) throws Exception {
        List rows = (List) new Unpickler().loads(pickled);
        List result = new ArrayList();
        for (int i = 0; i < rows.size(); i++) {
            result.add(internal(rows.get(i), type));
        }
        return result;
    }

    // ------------------------------------------------------------------ Paimon's values as plain

    private static Object[] fields(InternalRow row, RowType type) {
        List fields = type.getFields();
        Object[] values = new Object[fields.size()];
        for (int i = 0; i < values.length; i++) {
            DataType fieldType = ((DataField) fields.get(i)).type();
            Object value = InternalRow.createFieldGetter(fieldType, i).getFieldOrNull(row);
            values[i] = plain(value, fieldType);
        }
        return values;
    }

    private static Object plain(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        DataTypeRoot root = type.getTypeRoot();
        if (root == DataTypeRoot.CHAR || root == DataTypeRoot.VARCHAR) {
            return value.toString();
        } else if (root == DataTypeRoot.VARIANT) {
            return ((Variant) value).toJson();
        } else if (root == DataTypeRoot.DECIMAL) {
            return tagged("decimal", ((Decimal) value).toBigDecimal().toString());
        } else if (root == DataTypeRoot.DATE) {
            return tagged("date", value);
        } else if (root == DataTypeRoot.TIME_WITHOUT_TIME_ZONE) {
            return tagged("time", value);
        } else if (root == DataTypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
                || root == DataTypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE) {
            Timestamp timestamp = (Timestamp) value;
            return new Object[] {
                root == DataTypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE ? "timestamp" : "timestamp_ltz",
                Long.valueOf(timestamp.getMillisecond()),
                Integer.valueOf(timestamp.getNanoOfMillisecond())
            };
        } else if (root == DataTypeRoot.ARRAY) {
            return tagged("array", elements((InternalArray) value, ((ArrayType) type).getElementType()));
        } else if (root == DataTypeRoot.MAP) {
            InternalMap map = (InternalMap) value;
            MapType mapType = (MapType) type;
            return new Object[] {
                "map",
                elements(map.keyArray(), mapType.getKeyType()),
                elements(map.valueArray(), mapType.getValueType())
            };
        } else if (root == DataTypeRoot.ROW) {
            RowType rowType = (RowType) type;
            return new Object[] {
                "row", rowType.getFieldNames(), fields((InternalRow) value, rowType)
            };
        }
        return value;
    }

    private static List elements(InternalArray array, DataType type) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        List result = new ArrayList();
        for (int i = 0; i < array.size(); i++) {
            result.add(plain(getter.getElementOrNull(array, i), type));
        }
        return result;
    }

    private static Object[] tagged(String tag, Object value) {
        return new Object[] {tag, value};
    }

    // ------------------------------------------------------------------ plain values as Paimon's

    private static Object internal(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        DataTypeRoot root = type.getTypeRoot();
        if (root == DataTypeRoot.CHAR || root == DataTypeRoot.VARCHAR) {
            return BinaryString.fromString((String) value);
        } else if (root == DataTypeRoot.VARIANT) {
            return GenericVariant.fromJson((String) value);
        } else if (root == DataTypeRoot.TINYINT) {
            return Byte.valueOf(((Number) value).byteValue());
        } else if (root == DataTypeRoot.SMALLINT) {
            return Short.valueOf(((Number) value).shortValue());
        } else if (root == DataTypeRoot.INTEGER
                || root == DataTypeRoot.DATE
                || root == DataTypeRoot.TIME_WITHOUT_TIME_ZONE) {
            return Integer.valueOf(((Number) value).intValue());
        } else if (root == DataTypeRoot.BIGINT) {
            return Long.valueOf(((Number) value).longValue());
        } else if (root == DataTypeRoot.FLOAT) {
            return Float.valueOf(((Number) value).floatValue());
        } else if (root == DataTypeRoot.DOUBLE) {
            return Double.valueOf(((Number) value).doubleValue());
        } else if (root == DataTypeRoot.DECIMAL) {
            DecimalType decimal = (DecimalType) type;
            return Decimal.fromBigDecimal(
                    new BigDecimal((String) value), decimal.getPrecision(), decimal.getScale());
        } else if (root == DataTypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
                || root == DataTypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE) {
            Object[] parts = (Object[]) value;
            return Timestamp.fromEpochMillis(
                    ((Number) parts[0]).longValue(), ((Number) parts[1]).intValue());
        } else if (root == DataTypeRoot.ARRAY) {
            return array((List) value, ((ArrayType) type).getElementType());
        } else if (root == DataTypeRoot.MAP) {
            MapType mapType = (MapType) type;
            Map result = new HashMap();
            List pairs = (List) value;
            for (int i = 0; i < pairs.size(); i++) {
                Object[] pair = (Object[]) pairs.get(i);
                result.put(
                        internal(pair[0], mapType.getKeyType()),
                        internal(pair[1], mapType.getValueType()));
            }
            return new GenericMap(result);
        } else if (root == DataTypeRoot.ROW) {
            Object[] values = (Object[]) value;
            List fields = ((RowType) type).getFields();
            GenericRow row = new GenericRow(values.length);
            for (int i = 0; i < values.length; i++) {
                row.setField(i, internal(values[i], ((DataField) fields.get(i)).type()));
            }
            return row;
        }
        return value;
    }

    private static GenericArray array(List values, DataType type) {
        Object[] result = new Object[values.size()];
        for (int i = 0; i < result.length; i++) {
            result[i] = internal(values.get(i), type);
        }
        return new GenericArray(result);
    }
}
