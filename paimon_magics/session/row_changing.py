"""The part of a session by which Python changes rows of a table: `session.merge`."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.boundary import short_errors
from paimon_magics.session.merge_builder import MergeBuilder
from paimon_magics.session.open_session import OpenSession
from paimon_magics.session.table_names import named

__all__ = ["RowChanging"]


@short_errors
class RowChanging(OpenSession):
    """A session's methods for changes of rows."""

    def merge(self, frame: object, name: str, on: str | Sequence[str]) -> MergeBuilder:
        """Begin a MERGE of a frame into a table; nothing runs before `.run()`:

            session.merge(frame, "shop.orders", on="t.id = s.id") \\
                .when_matched_update({"amount": "t.amount + s.amount"}) \\
                .when_not_matched_insert() \\
                .run()

        In texts the table is `t` and the frame `s`. `on` may also be the names of columns that are
        equal on both sides. Raises InvalidValueError for a value that is no frame.
        """
        self._check_open()
        return MergeBuilder(self._connection, frame, named(name), on)
