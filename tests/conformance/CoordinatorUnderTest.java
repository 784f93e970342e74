package org.apache.paimon.rest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URL;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;

import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.options.CatalogOptions;
import org.apache.paimon.options.Options;
import org.apache.paimon.rest.auth.AuthProviderEnum;

/** A coordinator for one test, which the host starts: a process, with a warehouse of its own. */
final class CoordinatorUnderTest implements AutoCloseable {

    /** Starts and ends coordinators. `tests/conformance/host.py` has what it takes and answers. */
    private static final String HOST = System.getenv("CONFORMANCE_HOST");

    private final String warehouse;
    private final String url;
    private final String token;

    private CoordinatorUnderTest(String warehouse, String url, String token) {
        this.warehouse = warehouse;
        this.url = url;
        this.token = token;
    }

    /** Starts one for a warehouse's folder. */
    static CoordinatorUnderTest start(String warehouse) throws IOException {
        String[] answer = ask("POST", "/?warehouse=" + URLEncoder.encode(warehouse, "UTF-8"));
        return new CoordinatorUnderTest(warehouse, answer[0], answer[1]);
    }

    /** Connects, with options that win over those of the coordinator. */
    RESTCatalog catalog(Options options, Map<String, String> extraOptions) {
        options.set(CatalogOptions.WAREHOUSE.key(), warehouse);
        options.set(RESTCatalogOptions.URI, url);
        options.set(RESTCatalogOptions.TOKEN, token);
        options.set(RESTCatalogOptions.TOKEN_PROVIDER, AuthProviderEnum.BEAR.identifier());
        extraOptions.forEach(options::set);
        return new RESTCatalog(CatalogContext.create(options));
    }

    /** What a test gets that changes the state of Paimon's mock server behind its protocol. */
    static UnsupportedOperationException mocksInside(String hook) {
        return new UnsupportedOperationException("mock's inside: " + hook);
    }

    @Override
    public void close() throws IOException {
        ask("DELETE", "/?url=" + URLEncoder.encode(url, "UTF-8"));
    }

    private static String[] ask(String method, String path) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) new URL(HOST + path).openConnection();
        connection.setRequestMethod(method);
        try (InputStream stream = connection.getInputStream();
                BufferedReader reader =
                        new BufferedReader(
                                new InputStreamReader(stream, StandardCharsets.UTF_8))) {
            return reader.readLine().split(" ");
        }
    }
}
