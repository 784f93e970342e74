package org.apache.paimon.rest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URL;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.options.Options;
import org.apache.paimon.rest.auth.AuthProviderEnum;

/** A coordinator for one test, which the host starts: a process, with a warehouse of its own. */
final class CoordinatorUnderTest implements AutoCloseable {

    /** Starts and ends coordinators. `tests/conformance/host.py` has what it takes and answers. */
    private static final String HOST = System.getenv("CONFORMANCE_HOST");

    private final String url;
    private final String token;

    /** Options of clients: the warehouse, and keys of the store where the coordinator hands out none. */
    private final Map<String, String> given;

    private CoordinatorUnderTest(String url, String token, Map<String, String> given) {
        this.url = url;
        this.token = token;
        this.given = given;
    }

    /** Starts one for a warehouse's folder. */
    static CoordinatorUnderTest start(String warehouse) throws IOException {
        String[] answer = ask("POST", "/?warehouse=" + URLEncoder.encode(warehouse, "UTF-8"));
        Map<String, String> given = new HashMap<>();
        for (String option : Arrays.copyOfRange(answer, 2, answer.length)) {
            int equals = option.indexOf('=');
            given.put(option.substring(0, equals), option.substring(equals + 1));
        }
        return new CoordinatorUnderTest(answer[0], answer[1], given);
    }

    /** Connects, with options that win over those of the coordinator. */
    RESTCatalog catalog(Options options, Map<String, String> extraOptions) {
        given.forEach(options::set);
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
