package org.apache.paimon.rest;

import static org.apache.paimon.rest.CoordinatorUnderTest.mocksInside;

import java.io.IOException;
import java.nio.file.Paths;
import java.net.URI;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.paimon.Snapshot;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.Transform;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** Paimon's tests of a REST catalog, as a client of a coordinator. */
public class CoordinatorCatalogTest extends RESTCatalogTest {

    private CoordinatorUnderTest coordinator;

    @BeforeEach
    @Override
    public void setUp() throws Exception {
        super.setUp();
        coordinator = CoordinatorUnderTest.start(Paths.get(URI.create(warehouse)).toString());
        restCatalog = coordinator.catalog(options, Collections.emptyMap());
        catalog = restCatalog;
    }

    /** Takes the place of that of `CatalogTestBase`, as the mock's does: the databases stay. */
    @AfterEach
    public void tearDown() throws Exception {
        DEFAULT_TABLE_SCHEMA.options().clear(); // what a test that failed has left for the next
        restCatalog.close();
        coordinator.close();
    }

    @Override
    protected Catalog newRestCatalogWithDataToken() {
        return newRestCatalogWithDataToken(Collections.emptyMap());
    }

    @Override
    protected Catalog newRestCatalogWithDataToken(Map<String, String> extraOptions) {
        Map<String, String> all = new HashMap<>(extraOptions);
        all.put(RESTTokenFileIO.DATA_TOKEN_ENABLED.key(), "true");
        return coordinator.catalog(options, all);
    }

    @Override
    protected void revokeTablePermission(Identifier identifier) {
        throw mocksInside("revokeTablePermission");
    }

    @Override
    protected void revokeViewPermission(Identifier identifier) {
        throw mocksInside("revokeViewPermission");
    }

    @Override
    protected void authTableColumns(Identifier identifier, List<String> columns) {
        throw mocksInside("authTableColumns");
    }

    @Override
    protected void revokeDatabasePermission(String database) {
        throw mocksInside("revokeDatabasePermission");
    }

    @Override
    protected RESTToken getDataTokenFromRestServer(Identifier identifier) {
        throw mocksInside("getDataTokenFromRestServer");
    }

    @Override
    protected void setDataTokenToRestServerForMock(
            Identifier identifier, RESTToken expiredDataToken) {
        throw mocksInside("setDataTokenToRestServerForMock");
    }

    @Override
    protected void resetDataTokenOnRestServer(Identifier identifier) {
        throw mocksInside("resetDataTokenOnRestServer");
    }

    @Override
    protected void updateSnapshotOnRestServer(
            Identifier identifier,
            Snapshot snapshot,
            long recordCount,
            long fileSizeInBytes,
            long fileCount,
            long lastFileCreationTime) {
        throw mocksInside("updateSnapshotOnRestServer");
    }

    @Override
    protected void setColumnMasking(Identifier identifier, Map<String, Transform> columnMasking) {
        throw mocksInside("setColumnMasking");
    }

    @Override
    protected void setRowFilter(Identifier identifier, List<Predicate> rowFilters) {
        throw mocksInside("setRowFilter");
    }
}
