"""CALL → changes: Paimon's procedures by name and parameters, and what is wrong about a call."""

from __future__ import annotations

import pytest

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.procedures import PROCEDURES, PlannedCall, plan_call
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.maintenance import (
    AlterViewDialect,
    ChangeFunction,
    CompactDatabase,
    CompactManifest,
    CompactTable,
    CopyTable,
    DefineFunction,
    Maintenance,
    MergeBranch,
    MigrateDatabase,
    MigrateTable,
    RemoveFunction,
    RescaleBuckets,
    RewriteFileIndex,
)
from paimon_magics.statements.removals import (
    ExpireChangelogs,
    ExpirePartitions,
    ExpireSnapshots,
    ExpireTags,
    PurgeFiles,
    Removal,
    RemoveOrphanFiles,
    RemoveUnexistingFiles,
)
from paimon_magics.statements.version_changes import (
    Call,
    ClearConsumers,
    CreateAutomaticTags,
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    MarkPartitionsDone,
    RenameBranch,
    RenameTag,
    RepairEarliestSnapshot,
    ReplaceTag,
    ResetConsumer,
    RollBackToSnapshot,
    RollBackToTag,
    RollBackToTimestamp,
    RollBackToWatermark,
    VersionChange,
)


def planned(text: str, **parameters: object) -> PlannedCall:
    call = parse_statement(f"CALL {text}")
    assert isinstance(call, Call)
    return plan_call(call, parameters, "paimon")


CHANGES: list[tuple[str, VersionChange]] = [
    ("sys.create_tag('t', 'a')", CreateTag("a")),
    ("sys.create_tag('t', 'a', 3, '1 d')", CreateTag("a", 3, "1 d")),
    ("paimon.sys.Create_Tag(tag => 'a', TABLE => 't')", CreateTag("a")),
    ("sys.create_tag(table => 't', tag => 'a', snapshot => '3')", CreateTag("a", 3)),
    ("sys.create_tag_from_timestamp('t', 'a', 5, '1 h')", CreateTagFromTimestamp("a", 5, "1 h")),
    ("sys.replace_tag('t', 'a', 2)", ReplaceTag("a", 2)),
    ("sys.rename_tag('t', 'a', 'b')", RenameTag("a", "b")),
    ("sys.delete_tag('t', 'a, b')", DeleteTags(("a", "b"))),
    ("sys.create_branch('t', 'b')", CreateBranch("b")),
    ("sys.create_branch('t', 'b', 'a', 'true')", CreateBranch("b", "a", True)),
    ("sys.create_branch(table => 't', branch => 'b', ignoreIfExists => FALSE)", CreateBranch("b")),
    ("sys.rename_branch('t', 'a', 'b')", RenameBranch("a", "b")),
    ("sys.delete_branch('t', 'a,b')", DeleteBranches(("a", "b"))),
    ("sys.fast_forward('t', 'b')", FastForward("b")),
    ("sys.rollback('t', '12')", RollBackToSnapshot(12)),
    ("sys.rollback('t', 'monday')", RollBackToTag("monday")),
    ("sys.rollback(table => 't', snapshot => 12)", RollBackToSnapshot(12)),
    ("sys.rollback(table => 't', tag => '12')", RollBackToTag("12")),
    ("sys.rollback_to_timestamp('t', 1795284179384)", RollBackToTimestamp(1795284179384)),
    ("sys.rollback_to_watermark('t', 7)", RollBackToWatermark(7)),
    ("sys.trigger_tag_automatic_creation('t')", CreateAutomaticTags()),
    ("sys.reset_consumer('t', 'c')", ResetConsumer("c")),
    (
        "sys.reset_consumer(table => 't', nextSnapshotId => 5, consumerid => 'c')",
        ResetConsumer("c", 5),
    ),
    ("sys.clear_consumers('t')", ClearConsumers()),
    ("sys.clear_consumers('t', 'a.*', ' ')", ClearConsumers("a.*")),
    ("sys.mark_partition_done('t', 'd=1,h=2; d=2')", MarkPartitionsDone(("d=1,h=2", "d=2"))),
    ("sys.repair_earliest_snapshot('t', 4)", RepairEarliestSnapshot(4)),
]


UPKEEP: list[tuple[str, Maintenance]] = [
    ("sys.compact('t')", CompactTable()),
    (
        "sys.compact('t', 'p=1', ' ', 'order', 'a,b', NULL, 'k=v', '1 d')",
        CompactTable("p=1", None, "order", "a,b", None, "k=v", "1 d"),
    ),
    ("sys.compact(table => 't', where => 'p > 1')", CompactTable(where="p > 1")),
    ("sys.compact_manifest('t')", CompactManifest()),
    ("sys.compact_manifest('t', 'k=v', true)", CompactManifest("k=v", True)),
    ("sys.rescale('t', 4, 'p=1')", RescaleBuckets(4, "p=1")),
    ("sys.rescale(table => 't', where => 'p > 1')", RescaleBuckets(where="p > 1")),
    ("sys.rewrite_file_index('t')", RewriteFileIndex()),
    ("sys.rewrite_file_index('t', 'p > 1')", RewriteFileIndex("p > 1")),
    ("sys.merge_branch('t', 'b')", MergeBranch("b")),
    ("sys.merge_branch('t', 'b', 'c')", MergeBranch("b", "c")),
]
REMOVALS: list[tuple[str, Removal]] = [
    ("sys.expire_snapshots('t')", ExpireSnapshots()),
    (
        "sys.expire_snapshots('t', 3, 1, '2026-01-31', 5, 'k=v')",
        ExpireSnapshots(3, 1, "2026-01-31", 5, "k=v"),
    ),
    ("sys.expire_changelogs('t', 3, 1, ' ', 5, true)", ExpireChangelogs(3, 1, None, 5, True)),
    ("sys.expire_tags(table => 't', older_than => '2026-01-31')", ExpireTags("2026-01-31")),
    (
        "sys.expire_partitions('t', '1 d', 'yyyy', '$p', 'values-time', 7, 'k=v')",
        ExpirePartitions("1 d", "yyyy", "$p", "values-time", 7, "k=v"),
    ),
    (
        "sys.remove_orphan_files('t', '2026-01-31', true, 4, 'local')",
        RemoveOrphanFiles("2026-01-31", True, 4, "local"),
    ),
    ("sys.purge_files('t')", PurgeFiles()),
    ("sys.remove_unexisting_files('t', true, 4)", RemoveUnexistingFiles(True, 4)),
]
OF_DATABASES: list[tuple[str, Maintenance]] = [
    ("sys.compact_database()", CompactDatabase()),
    ("sys.compact_database('d', '.*', 'x', 'k=v')", CompactDatabase("d", ".*", "x", "k=v")),
    ("sys.compact_database(excluding_tables => 'x')", CompactDatabase(excluding_tables="x")),
    ("sys.copy('d.a', 'b', ' ')", CopyTable("d.a", "b")),
    ("sys.alter_view_dialect('v', 'drop')", AlterViewDialect("v", "drop")),
    (
        """sys.create_function(' f', '[{"id": 0}]', ' ', false, 'c', 'k=v')""",
        DefineFunction("f", ({"id": 0},), (), False, "c", (("k", "v"),)),
    ),
    ("""sys.alter_function('f', '{"action": "x"}')""", ChangeFunction("f", {"action": "x"})),
    ("sys.drop_function(function => 'f')", RemoveFunction("f")),
    (
        "sys.alter_view_dialect('v', 'add', 'flink', 'SELECT 1')",
        AlterViewDialect("v", "add", "flink", "SELECT 1"),
    ),
    (
        "sys.copy(target_table => 'b', source_table => 'a', where => 'p>1')",
        CopyTable("a", "b", "p>1"),
    ),
    ("sys.migrate_table('hive', 'd.t')", MigrateTable("hive", "d.t")),
    (
        "sys.migrate_table('hive', 't', 'a=1, b = 2', FALSE, 'd.u', MAP('b', '3', 'c', ''), 4)",
        MigrateTable("hive", "t", (("a", "1"), ("b", "3"), ("c", "")), False, "d.u", 4),
    ),
    (
        "sys.migrate_database(database => 'd', source_type => 'hive', options => 'a=1')",
        MigrateDatabase("hive", "d", (("a", "1"),)),
    ),
]


@pytest.mark.parametrize(("text", "upkeep"), UPKEEP, ids=[text for text, _ in UPKEEP])
def test_call_plans_the_maintenance_of_a_table(text: str, upkeep: Maintenance) -> None:
    actual = planned(text)
    assert (actual.table, actual.change) == ("t", upkeep)


@pytest.mark.parametrize(("text", "removal"), REMOVALS, ids=[text for text, _ in REMOVALS])
def test_call_plans_what_is_removed_from_a_table(text: str, removal: Removal) -> None:
    actual = planned(text)
    assert (actual.table, actual.change) == ("t", removal)


@pytest.mark.parametrize(("text", "upkeep"), OF_DATABASES, ids=[text for text, _ in OF_DATABASES])
def test_call_on_several_tables_names_no_table(text: str, upkeep: Maintenance) -> None:
    actual = planned(text)
    assert (actual.table, actual.change, actual.position) == (None, upkeep, len("CALL "))


@pytest.mark.parametrize(("text", "change"), CHANGES, ids=[text for text, _ in CHANGES])
def test_call_plans_the_change_of_paimons_procedure(text: str, change: VersionChange) -> None:
    actual = planned(text)
    assert (actual.table, actual.change) == ("t", change)


def test_tests_cover_every_offered_procedure() -> None:
    tried = (*CHANGES, *UPKEEP, *REMOVALS, *OF_DATABASES)
    assert {planned(text).procedure for text, _ in tried} == set(PROCEDURES)


def test_bind_parameters_supply_procedure_arguments() -> None:
    text = "sys.create_tag(:t, tag => :name, snapshot => 3)".replace(":t, ", "table=>:t,")
    actual = planned(text, t="db.t", name="a")
    assert (actual.table, actual.change) == ("db.t", CreateTag("a", 3))


@pytest.mark.parametrize(
    ("text", "error", "message", "hint", "at"),
    [
        ("sys.create_tga('t')", UnknownNameError, "`sys.create_tga`", "`create_tag`", "sys"),
        ("create_tag('t', 'a')", UnknownNameError, "`create_tag`", "CALL sys.create_tag", "create"),
        ("mine.sys.rollback('t')", UnknownNameError, "mine.sys", "CALL sys.rollback", "mine"),
        ("sys.repair('t')", UnsupportedStatementError, "nothing to repair", "SHOW TABLES", "sys"),
        ("sys.migrate_table('hive', 't', 'a')", InvalidValueError, "no option", "file.f", "sys"),
        (
            "sys.migrate_table('hive', 't', '', true, 'u', 'a=1')",
            InvalidValueError,
            "map('k', 'v')",
            "sys.migrate_table(",
            "'a=1'",
        ),
        ("sys.mark_partition_done('t', ' ;')", InvalidValueError, "no partition", "day=", "sys"),
        ("sys.create_tag('t')", InvalidValueError, "needs `tag`", "sys.create_tag(table", "sys"),
        ("sys.create_tag('t', NULL)", InvalidValueError, "needs `tag`", "table, tag", "NULL"),
        ("sys.create_tag('t', 'a', 'x')", InvalidValueError, "`snapshot`", "snapshot", "'x'"),
        ("sys.create_tag('t', 'a', 1.5)", InvalidValueError, "whole number", "", "1.5"),
        ("sys.create_tag('t', TRUE)", InvalidValueError, "`tag` must be a text", "", "TRUE"),
        (
            "sys.create_tag('t', 'a', 1, 'd', 5)",
            InvalidValueError,
            "too many arguments for",
            "Name",
            "5)",
        ),
        ("sys.create_tag('t', tag => 'a')", InvalidValueError, "mixed", "Name", "tag =>"),
        ("sys.create_tag(table => 't', 'a')", InvalidValueError, "mixed", "Name", "'a'"),
        ("sys.create_tag(table => 't', tga => 'a')", UnknownNameError, "`tga`", "`tag`", "tga"),
        ("sys.create_tag(tag => 'a', tag => 'b')", InvalidValueError, "twice", "", "tag => 'b'"),
        ("sys.rollback('t')", InvalidValueError, "one of", "snapshot => 3", "sys"),
        ("sys.rollback('t', '1', 2)", InvalidValueError, "one of", "snapshot => 3", "sys"),
        ("sys.create_branch('t','b','a','x')", InvalidValueError, "true or false", "", "'x'"),
    ],
)
def test_invalid_call_is_refused_with_its_position(
    text: str, error: type[PaimonMagicsError], message: str, hint: str, at: str
) -> None:
    with pytest.raises(error) as caught:
        planned(text)
    assert message in caught.value.message and hint in caught.value.hint
    assert caught.value.position == len("CALL ") + text.index(at)
