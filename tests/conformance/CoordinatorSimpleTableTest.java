package org.apache.paimon.rest;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;

import org.apache.paimon.options.Options;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;

/** Paimon's tests of a table in a REST catalog, in that of a coordinator. */
public class CoordinatorSimpleTableTest extends RESTSimpleTableTest {

    @TempDir Path warehouse;

    private CoordinatorUnderTest coordinator;

    @Override
    protected RESTCatalog createRESTCatalog() throws IOException {
        coordinator = CoordinatorUnderTest.start(Files.createDirectories(warehouse).toString());
        return coordinator.catalog(new Options(), Collections.emptyMap());
    }

    @AfterEach
    @Override
    public void after() throws Exception {
        try {
            super.after();
        } finally {
            coordinator.close();
        }
    }
}
