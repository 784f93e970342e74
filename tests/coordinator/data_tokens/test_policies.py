"""What the policies of keys name."""

import json
from typing import Any

import pytest

from paimon_magics.coordinator.data_tokens.policies import (
    POLICY_CHARACTERS_MAX,
    Folder,
    Level,
    Reach,
    level_of,
    reach_of,
    session_policy,
    table_policy,
)
from paimon_magics.coordinator.protocol.principals import (
    Principal,
    Scope,
    closed_table,
    grants_of,
)
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.requests import names_of

TABLES = [("shop", "orders"), ("shop", "x_public"), ("shop", "secret"), ("ops", "x_public")]


def granted(*texts: str) -> Principal:
    return Principal.granted("ada", grants_of(texts))


def reach(*texts: str) -> Reach:
    return reach_of(granted(*texts), lambda: TABLES)


@pytest.mark.parametrize(
    ("texts", "reads", "adds"),
    [
        (["read"], ["*.db/*"], []),
        (["write"], ["*.db/*"], ["*.db/*"]),
        (["alter"], ["*.db/*"], []),
        (["read=shop"], ["shop.db/*"], []),
        (["read=dev_*"], ["dev_*.db/*"], []),
        (["insert=shop.orders"], ["shop.db/orders/*"], ["shop.db/orders/*"]),
        (["maintain=shop.orders_*"], ["shop.db/orders_*"], ["shop.db/orders_*"]),
        (["read=shop", "insert=shop.orders"], ["shop.db/*"], ["shop.db/orders/*"]),
    ],
)
def test_grants_become_patterns_of_paths(
    texts: list[str], reads: list[str], adds: list[str]
) -> None:
    found = reach(*texts)
    assert (found.reads, found.adds, found.hidden) == (reads, adds, [])


def test_patterns_that_would_match_more_are_expanded() -> None:
    assert reach("read=shop.*_public").reads == ["shop.db/x_public/*"]
    assert reach("read=*.x_public").reads == ["ops.db/x_public/*", "shop.db/x_public/*"]


def test_tables_of_patterns_that_need_no_expansion_are_not_listed() -> None:
    def fails() -> list[tuple[str, str]]:
        raise AssertionError

    assert reach_of(granted("read=shop.orders_*"), fails).reads == ["shop.db/orders_*"]


def test_closed_tables_are_denied_to_all_but_administrators() -> None:
    closed = frozenset({closed_table("ops", "audit")})
    names = [("ops", "audit")]
    writer = granted("write").without(closed)
    assert reach_of(writer, lambda: TABLES, names).hidden == [("ops", "audit")]
    assert reach_of(granted("admin").without(closed), lambda: TABLES, names).hidden == []


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("read=shop.orders", Level.READ),
        ("alter=shop.orders", Level.READ),
        ("insert=shop.orders", Level.ADD),
        ("maintain=shop.orders", Level.ADD),
        ("change=shop.orders", Level.COMMIT),
        ("write=shop.orders", Level.COMMIT),
        ("admin=shop.orders", Level.COMMIT),
    ],
)
def test_levels_follow_from_scopes(text: str, level: Level) -> None:
    assert level_of(granted(text), "shop", "orders") is level


def allowed(policy: str, action: str) -> list[str]:
    document: dict[str, Any] = json.loads(policy)
    return [
        resource
        for statement in document["Statement"]
        if statement["Effect"] == "Allow" and action in statement["Action"]
        for resource in statement["Resource"]
    ]


def test_policy_of_a_reader_allows_no_write() -> None:
    policy = table_policy(Folder("lake", "w/shop.db/orders"), Level.READ)
    below = ["arn:aws:s3:::lake/w/shop.db/orders/*", "arn:aws:s3:::lake/w/shop.db/orders"]
    assert allowed(policy, "s3:GetObject") == below
    assert "Put" not in policy and "Delete" not in policy


def test_policy_of_a_table_with_long_names_fits() -> None:
    folder = Folder("l" * 63, f"warehouse/{'d' * 30}.db/{'t' * 40}")
    assert all(len(table_policy(folder, level, 1)) < POLICY_CHARACTERS_MAX for level in Level)


def test_too_many_grants_for_one_key_are_refused_by_their_length() -> None:
    texts = [f"read=shop.table_{number}" for number in range(60)]
    with pytest.raises(UnsupportedStatementError, match="The policy of the key has"):
        session_policy(Folder("lake", "w"), reach(*texts))


@pytest.mark.parametrize("name", ["a*", "a?", "${aws:username}"])
def test_names_with_wildcards_get_no_key(name: str) -> None:
    with pytest.raises(UnsupportedStatementError, match="No key can be limited"):
        Folder.of(f"s3://lake/w/shop.db/{name}")


def test_a_principal_without_rights_gets_a_key_that_is_denied_everything() -> None:
    nobody = Principal("eve", None)
    policy = json.loads(session_policy(Folder("lake", "w"), reach_of(nobody, lambda: TABLES)))
    assert [statement["Effect"] for statement in policy["Statement"]] == ["Deny"]
    assert Scope.READ not in policy["Statement"][0]["Action"]


@pytest.mark.parametrize("name", ["*_w", "a?_w", "${aws:username}_w"])
def test_table_whose_name_is_a_pattern_has_no_part_in_a_key(name: str) -> None:
    tables = [("shop", name), ("shop", "a_w"), ("${aws:username}", "b_w")]
    assert reach_of(granted("write=shop.*_w"), lambda: tables).adds == ["shop.db/a_w/*"]
    assert reach_of(granted("write=*.b_w"), lambda: tables).adds == []


def test_key_that_adds_is_bound_to_the_names_of_its_users_files() -> None:
    folder = Folder("lake", "w/shop.db/orders")
    policy = table_policy(folder, Level.ADD, names_of("ada"))
    assert allowed(policy, "s3:PutObject") == [
        f"arn:aws:s3:::lake/w/shop.db/orders/*/{names_of('ada')}*"
    ]
    assert names_of("ada") != names_of("eve")


def test_session_with_fifteen_tables_gets_a_key() -> None:
    texts = [f"insert=sales.table_{number}" for number in range(15)]
    session_policy(Folder("lake", "warehouse"), reach(*texts), names_of("ada"), 1)
