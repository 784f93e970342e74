"""Who else works with a coordinator: sessions of others, and engines over its REST catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from pyspark.sql import SparkSession

from paimon_magics import Session
from paimon_magics.session.opening import connection_on
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.settings import Settings
from tests.coordinator.process import Process


@contextmanager
def beside(spark: SparkSession, **words: Any) -> Iterator[Session]:
    """A session of somebody else, as in another process."""
    connection = connection_on(PlaceWords(**words), Settings(), spark.newSession())
    with Session(connection) as session:
        yield session


def rest_answer(process: Process, method: str, path: str, body: Any = None) -> Any:
    """The document that the coordinator answers to a request of the REST catalog."""
    headers = {"Authorization": f"Bearer {process.token()}"}
    with httpx.Client(trust_env=False, headers=headers) as http:
        answer = http.request(method, f"{process.address}/v1/paimon{path}", json=body)
    assert answer.is_success, answer.text
    return answer.json()
