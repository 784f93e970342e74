// Paimon's Java library on file indexes: what it writes for values, and what it finds in bytes.
// Compiled at run time by the Janino that Spark carries (Java without generics or lambdas).

import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import net.razorvine.pickle.Unpickler;

import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.fileindex.FileIndexFormat;
import org.apache.paimon.fileindex.FileIndexReader;
import org.apache.paimon.fileindex.FileIndexResult;
import org.apache.paimon.fileindex.FileIndexWriter;
import org.apache.paimon.fileindex.FileIndexer;
import org.apache.paimon.fileindex.bitmap.BitmapIndexResult;
import org.apache.paimon.fs.ByteArraySeekableStream;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.FieldRef;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypeRoot;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.RoaringBitmap32;

public class FileIndexes {

    /** The index of the column `c` with these values, in its container. */
    public byte[] written(String kind, String typeText, Map options, byte[] pickled)
            throws Exception {
        DataType type = DataTypeJsonParser.parseAtomicTypeSQLString(typeText);
        FileIndexWriter writer =
                FileIndexer.create(kind, type, Options.fromMap(options)).createWriter();
        List values = (List) new Unpickler().loads(pickled);
        for (int i = 0; i < values.size(); i++) {
            writer.writeRecord(internal(values.get(i), type));
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        FileIndexFormat.Writer container = FileIndexFormat.createWriter(out);
        container.writeColumnIndexes(
                Collections.singletonMap(
                        "c", Collections.singletonMap(kind, writer.serializedBytes())));
        container.close();
        return out.toByteArray();
    }

    /** For each question {operator, literals} the rows that an index leaves, or whether any: JSON. */
    public String found(byte[] stored, String typeText, String name, byte[] pickled)
            throws Exception {
        DataType type = DataTypeJsonParser.parseAtomicTypeSQLString(typeText);
        RowType row = new RowType(Collections.singletonList(new DataField(0, name, type)));
        FileIndexFormat.Reader reader =
                FileIndexFormat.createReader(new ByteArraySeekableStream(stored), row);
        Iterator readers = reader.readColumnIndex(name).iterator();
        FileIndexReader index = (FileIndexReader) readers.next();
        FieldRef field = new FieldRef(0, name, type);
        List questions = (List) new Unpickler().loads(pickled);
        List answers = new ArrayList();
        for (int q = 0; q < questions.size(); q++) {
            Object[] question = (Object[]) questions.get(q);
            List given = (List) question[1];
            List literals = new ArrayList();
            for (int i = 0; i < given.size(); i++) {
                literals.add(internal(given.get(i), type));
            }
            FileIndexResult result = asked(index, field, (String) question[0], literals);
            if (result instanceof BitmapIndexResult) {
                List rows = new ArrayList();
                Iterator numbers =
                        ((RoaringBitmap32) ((BitmapIndexResult) result).get()).iterator();
                while (numbers.hasNext()) {
                    rows.add(numbers.next());
                }
                answers.add(rows);
            } else {
                answers.add(Boolean.valueOf(result.remain()));
            }
        }
        return answers.toString();
    }

    private static FileIndexResult asked(
            FileIndexReader index, FieldRef field, String operator, List literals) {
        Object first = literals.isEmpty() ? null : literals.get(0);
        if (operator.equals("=")) {
            return (FileIndexResult) index.visitEqual(field, first);
        } else if (operator.equals("<>")) {
            return (FileIndexResult) index.visitNotEqual(field, first);
        } else if (operator.equals("<")) {
            return (FileIndexResult) index.visitLessThan(field, first);
        } else if (operator.equals("<=")) {
            return (FileIndexResult) index.visitLessOrEqual(field, first);
        } else if (operator.equals(">")) {
            return (FileIndexResult) index.visitGreaterThan(field, first);
        } else if (operator.equals(">=")) {
            return (FileIndexResult) index.visitGreaterOrEqual(field, first);
        } else if (operator.equals("in")) {
            return (FileIndexResult) index.visitIn(field, literals);
        } else if (operator.equals("not in")) {
            return (FileIndexResult) index.visitNotIn(field, literals);
        } else if (operator.equals("is null")) {
            return (FileIndexResult) index.visitIsNull(field);
        }
        return (FileIndexResult) index.visitIsNotNull(field);
    }

    private static Object internal(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        DataTypeRoot root = type.getTypeRoot();
        if (root == DataTypeRoot.CHAR || root == DataTypeRoot.VARCHAR) {
            return BinaryString.fromString((String) value);
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
        }
        return value; // flags and bytes
    }
}
