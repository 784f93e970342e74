"""Small inserts: how many are acknowledged as durable in a second, and what they cost the server.

The aims, on two cores that the clients share: 40,000 rows a second in requests of 64 statements,
3,000 requests a second of one statement over 32 connections, 20,000 messages a second over streams;
at half of each rate a 99th percentile below 100 ms. The first two need `wrk`, a load generator in
C. `SECONDS` in the environment makes it shorter. In the end the count of visible rows is checked:
every acknowledged row must be visible once. Deletes and updates by key are measured beside inserts
of as many rows, in one table with a primary key.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from bench_commits import started
from measure import cpu_ms, resident_mb

from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog

_SECONDS = int(os.environ.get("SECONDS", "8"))
_TABLE = TableName("events", "default")
_SQL = (
    "CREATE TABLE events (id BIGINT, name STRING, at BIGINT, kind INT) TBLPROPERTIES "
    "('auto_batch_load' = 'true', 'group_commit_interval_ms' = '2000')"
)
_ROW = '[1234567, "a name of some length here", 1732000000000, 3]'
_STATEMENTS = 64
_KEYED = TableName("keyed", "default")
_KEYED_SQL = (
    "CREATE TABLE keyed (id BIGINT NOT NULL, name STRING, at BIGINT) TBLPROPERTIES ('primary-key' "
    "= 'id', 'bucket' = '2', 'auto_batch_load' = 'true', 'group_commit_interval_ms' = '600000')"
)
_KEYED_ROWS = 200_000
_CHANGES = 20_000
_STREAMS = 8
_WINDOW = 256


def wrk(address: str, token: str, body: str, connections: int) -> tuple[int, float, float]:
    """Run `wrk`; return the number of requests, all answered with 2xx, and the median and 99th
    percentile of their times in ms."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(
            f'wrk.method = "POST"\nwrk.headers["Authorization"] = "Bearer {token}"\n'
            f"wrk.body = [==[{body}]==]\n"
        )
        script.flush()
        done = subprocess.run(
            [
                *("wrk", "-t1", f"-c{connections}", f"-d{_SECONDS}s", "--latency"),
                *("-s", script.name, f"{address}/v1/inserts/default/events"),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "Non-2xx" not in done, done
    count = re.search(r"(\d+) requests in", done)
    assert count is not None
    return int(count[1]), _milliseconds(done, "50%"), _milliseconds(done, "99%")


def _milliseconds(text: str, percentile: str) -> float:
    match = re.search(rf"{percentile}\s+([\d.]+)(us|ms|s)", text)
    assert match is not None
    return float(match[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[match[2]]


def stream(
    address: str, token: str, streams: int, rate: float, seconds: float, results: object
) -> None:
    """Run some streams in one process; put (messages answered, a sample of latencies in ms) into
    the queue `results`. Each stream sends `rate` messages a second; 0 means as many as it can.

    The client is as cheap as Python allows, since it shares the cores with the server: frames are
    made once, and answers are counted without parsing them.
    """
    times: list[float] = []
    text = f'{{"rows": [{_ROW}]}}'.encode()
    assert len(text) < 126
    frame = bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text  # masked by zeros
    place = urlsplit(address)

    async def one() -> int:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(
            f"GET /v1/inserts/default/events/stream HTTP/1.1\r\nHost: {place.netloc}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        answered = sent = 0
        begun: deque[tuple[int, float]] = deque()
        ends = (began := time.perf_counter()) + seconds

        async def take() -> None:
            nonlocal answered
            content = await asyncio.wait_for(reader.read(1 << 16), 30)
            assert content and b"error" not in content, content
            answered += content.count(b'"lsn"')
            while begun and begun[0][0] < answered:
                times.append((time.perf_counter() - begun.popleft()[1]) * 1000)

        while (now := time.perf_counter()) < ends:
            room = _WINDOW - (sent - answered)
            if rate:
                room = min(room, int((now - began) * rate) - sent)
            if room > 0:
                begun.append((sent, now))
                writer.write(frame * room)
                sent += room
            if rate and sent == answered:
                await asyncio.sleep(0.005)
            else:
                await take()
        while answered < sent:
            await take()
        writer.close()
        return answered

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(one() for _ in range(streams))))

    results.put((asyncio.run(all_of_them()), times))  # type: ignore[attr-defined]


def streamed(
    address: str, token: str, rate: float = 0.0, seconds: float = _SECONDS
) -> tuple[int, list[float]]:
    """Run eight streams in two processes; return the number of answered messages, and a sample of
    latencies in ms. `rate` and `seconds` as in `stream`."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=stream, args=(address, token, _STREAMS // 2, rate, seconds, results))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(count for count, _ in found), [t for _, times in found for t in times]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        create(warehouse)
        options = ("--log-bytes-max=8000000000",)
        with started(warehouse, Path(folder) / "state", *options) as (pid, at):
            place = at.find()
            assert place is not None
            address, token = place.address, place.token
            rows = 0
            if shutil.which("wrk") is None:
                print("wrk is missing: only streams are measured", file=sys.stderr)
            else:
                rows += _requests(address, token, pid)
            rows += _streams(address, token, pid)
            with httpx.Client(timeout=300, trust_env=False) as http:
                began = time.perf_counter()
                http.post(
                    f"{address}/v1/inserts/default/events/flush",
                    headers={"Authorization": f"Bearer {token}"},
                    json={"wait_ms": 240_000},
                ).raise_for_status()
            print(f"loading what was left took {time.perf_counter() - began:.1f} s")
            _changes(address, token)
            print(f"the server has {resident_mb(pid):.0f} MB resident")
        visible = _count(warehouse)
        # wrk does not wait for the last answer of each connection.
        print(f"acknowledged {rows:,} rows at least, {visible:,} are visible")
        assert rows <= visible <= rows + 4 * 32 * _STATEMENTS


def create(warehouse: Path) -> None:
    catalog = Catalog.open({"warehouse": str(warehouse)})
    for name, sql in ((_TABLE, _SQL), (_KEYED, _KEYED_SQL)):
        statement = parse_statement(sql)
        assert isinstance(statement, CreateTable)
        catalog.create_table(name, plan_create_table(statement))


def _requests(address: str, token: str, pid: int) -> int:
    one = f'{{"rows": [{_ROW}]}}'
    many = json.dumps({"statements": [json.loads(one)] * _STATEMENTS})
    rows, _, _ = wrk(address, token, one, 1)  # warm
    for what, body, count, connections in (
        ("one statement a request, 32 connections", one, 1, 32),
        ("one statement a request, 4 connections", one, 1, 4),
        (f"{_STATEMENTS} statements a request, 8 connections", many, _STATEMENTS, 8),
        (f"{_STATEMENTS} statements a request, 1 connection", many, _STATEMENTS, 1),
    ):
        before = cpu_ms(pid)
        requests, median, late = wrk(address, token, body, connections)
        used = (cpu_ms(pid) - before) * 1000 / (requests * count)
        rows += requests * count
        print(
            f"{what}: {requests * count / _SECONDS:,.0f} rows/s, p50 {median:.1f} ms, "
            f"p99 {late:.1f} ms, {used:.0f} us of a core per statement"
        )
    return rows


def _streams(address: str, token: str, pid: int) -> int:
    rows = 0
    for what, rate in (("as fast as they can", 0.0), ("10,000 a second", 10_000 / _STREAMS)):
        before = cpu_ms(pid)
        count, times = streamed(address, token, rate)
        used = (cpu_ms(pid) - before) * 1000 / count
        rows += count
        late = statistics.quantiles(times, n=100)[98]
        print(
            f"{_STREAMS} streams, {what}: {count / _SECONDS:,.0f} rows/s, "
            f"p50 {statistics.median(times):.1f} ms, p99 {late:.1f} ms, "
            f"{used:.0f} us of a core per statement"
        )
    return rows


def _changes(address: str, token: str) -> None:
    """Send statements of one key each, 64 in a request, and load them."""
    keys = range(0, _KEYED_ROWS, _KEYED_ROWS // _CHANGES)
    before = [
        {"rows": [[n, "before", n] for n in range(at, at + 1000)]}
        for at in range(0, _KEYED_ROWS, 1000)
    ]
    sent = {
        "rows inserted before": before,
        "inserts": [{"rows": [[n, "again", n]]} for n in keys],
        "updates by key": [{"update": {"keys": [[n]], "set": {"name": "new"}}} for n in keys],
        "deletes by key with a condition": [
            {"delete": {"keys": [[n]], "where": [["at", "<", 100_000]]}} for n in keys
        ],
        "deletes by key": [{"delete": {"keys": [[n]]}} for n in keys],
    }
    path = f"{address}/v1/inserts/default/keyed"
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(timeout=300, trust_env=False, headers=headers) as http:
        for what, statements in sent.items():
            began = time.perf_counter()
            for at in range(0, len(statements), _STATEMENTS):
                some = {"statements": statements[at : at + _STATEMENTS]}
                http.post(path, json=some).raise_for_status()
            taken = time.perf_counter()
            http.post(f"{path}/flush", json={"wait_ms": 240_000}).raise_for_status()
            print(
                f"{len(statements):,} statements, {what}: "
                f"{len(statements) / (taken - began):,.0f} acknowledged/s over one connection, "
                f"loaded in {time.perf_counter() - taken:.2f} s"
            )


def _count(warehouse: Path) -> int:
    table = Catalog.open({"warehouse": str(warehouse)}).load(_TABLE)
    builder = table.paimon.new_read_builder()
    return sum(split.row_count for split in builder.new_scan().plan().splits())


if __name__ == "__main__":
    main()
