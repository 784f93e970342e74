"""Methods of PySpark's classes are replaced once, and put back, without Spark."""

from __future__ import annotations

from typing import Any

from paimon_magics.spark.patches import Call, Patches


class Base:
    """Stands for a class of PySpark's that others inherit from."""

    def save(self, name: str, mode: str = "error") -> str:
        return f"{name} {mode}"


class Frame(Base):
    def count(self) -> int:
        return 1

    @property
    def write(self) -> str:
        return "writer"


def tell(calls: list[Call]) -> Any:
    def patch(call: Call) -> Any:
        calls.append(call)
        return call.proceed()

    return patch


def test_patches_see_method_and_property_calls_until_restored() -> None:
    before = dict(vars(Frame))
    patches, calls = Patches(), list[Call]()
    methods = dict.fromkeys(("save", "count", "write", "missing"), tell(calls))
    patches.apply(Frame, methods)
    patches.apply(Frame, methods)  # nothing is replaced twice
    frame = Frame()
    assert (frame.save("t", mode="append"), frame.count(), frame.write) == ("t append", 1, "writer")
    assert [call.name for call in calls] == ["Frame.save", "Frame.count", "Frame.write"]
    assert calls[0].method == "save"
    assert calls[0].arguments == {"self": frame, "name": "t", "mode": "append"}
    patches.restore()
    assert dict(vars(Frame)) == before
    assert frame.save("t") == "t error"
    assert len(calls) == 3


def test_calls_from_unseen_packages_go_to_the_original() -> None:
    patches, calls = Patches(), list[Call]()
    patches.apply(Frame, {"count": tell(calls)}, unseen=(__name__.partition(".")[0],))
    assert Frame().count() == 1
    patches.restore()
    assert calls == []


def test_restore_keeps_replacement_by_another_library() -> None:
    patches, calls = Patches(), list[Call]()
    original = Frame.count
    patches.apply(Frame, {"count": tell(calls)})
    patched = Frame.count
    Frame.count = lambda self: patched(self) + 1  # type: ignore[method-assign]
    patches.restore()
    assert Frame().count() == 2
    assert len(calls) == 1
    Frame.count = original  # type: ignore[method-assign]


def test_call_with_invalid_arguments_has_no_bound_arguments() -> None:
    call = Call("Frame.save", Frame.save, Frame(), (), {"nothing": 1})
    assert call.arguments == {}
