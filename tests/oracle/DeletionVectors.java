// Deletion vectors as Paimon's Java library writes and reads them. Compiled at run time by the Janino
// that Spark carries (Java without generics or lambdas).

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.List;

import org.apache.paimon.deletionvectors.Bitmap64DeletionVector;
import org.apache.paimon.deletionvectors.BitmapDeletionVector;
import org.apache.paimon.deletionvectors.DeletionVector;

public class DeletionVectors {

    /** A vector of rows, given as {first, count, step}, as it stands in an index file. */
    public byte[] written(List runs, boolean wide) throws Exception {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        vector(runs, wide).serializeTo(new DataOutputStream(content));
        return content.toByteArray();
    }

    /** What Java's metadata says is the length of that vector. */
    public long length(List runs, boolean wide) throws Exception {
        return vector(runs, wide).serializeTo(new DataOutputStream(new ByteArrayOutputStream()));
    }

    /** Whether the vector at an offset of an index file marks these rows and no others. */
    public boolean marks(byte[] file, int offset, long length, List runs, boolean wide)
            throws Exception {
        DataInputStream stream =
                new DataInputStream(new ByteArrayInputStream(file, offset, file.length - offset));
        return DeletionVector.read(stream, Long.valueOf(length)).equals(vector(runs, wide));
    }

    private static DeletionVector vector(List runs, boolean wide) {
        DeletionVector vector =
                wide
                        ? (DeletionVector) new Bitmap64DeletionVector()
                        : (DeletionVector) new BitmapDeletionVector();
        for (int i = 0; i < runs.size(); i++) {
            List run = (List) runs.get(i);
            long first = ((Number) run.get(0)).longValue();
            long count = ((Number) run.get(1)).longValue();
            long step = ((Number) run.get(2)).longValue();
            for (long n = 0; n < count; n++) {
                vector.delete(first + n * step);
            }
        }
        return vector;
    }
}
