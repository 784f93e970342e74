// The keys by which Paimon's Java library clusters rows. Compiled at run time by the Janino that
// Spark carries (Java without generics or lambdas).

import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.List;

import net.razorvine.pickle.Unpickler;

import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.sort.hilbert.HilbertIndexer;
import org.apache.paimon.sort.zorder.ZIndexer;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.SerializationUtils;

public class Clustering {

    /** The keys of rows, which are serialised binary rows, on a Z curve: one after the other. */
    public byte[] zKeys(List types, int varLengthBytes, byte[] pickled) throws Exception {
        RowType type = rowType(types);
        ZIndexer indexer = new ZIndexer(type, type.getFieldNames(), varLengthBytes);
        indexer.open();
        List rows = (List) new Unpickler().loads(pickled);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int i = 0; i < rows.size(); i++) {
            out.write(indexer.index(row(rows.get(i))));
        }
        return out.toByteArray();
    }

    /** The keys of rows on a Hilbert curve. */
    public byte[] hilbertKeys(List types, byte[] pickled) throws Exception {
        RowType type = rowType(types);
        HilbertIndexer indexer = new HilbertIndexer(type, type.getFieldNames());
        indexer.open();
        List rows = (List) new Unpickler().loads(pickled);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int i = 0; i < rows.size(); i++) {
            out.write(indexer.index(row(rows.get(i))));
        }
        return out.toByteArray();
    }

    private static BinaryRow row(Object stored) {
        return SerializationUtils.deserializeBinaryRow((byte[]) stored);
    }

    private static RowType rowType(List types) {
        List fields = new ArrayList();
        for (int i = 0; i < types.size(); i++) {
            fields.add(
                    new DataField(
                            i,
                            "c" + i,
                            DataTypeJsonParser.parseAtomicTypeSQLString((String) types.get(i))));
        }
        return new RowType(fields);
    }
}
