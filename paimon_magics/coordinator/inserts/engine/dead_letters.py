"""Dead letters: kept in the log, and written to a table of their own, which everybody can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.loading.dead_letter_table import DeadLetterTable, State, Told
from paimon_magics.coordinator.inserts.log.interface import DeadLetter, Log

__all__ = ["DeadLetters"]


class DeadLetters:
    """The dead letters of one log. Safe for several threads.

    `name_of` returns the present name of the table with an identity, None where it is unknown.
    """

    def __init__(
        self, log: Log, table: DeadLetterTable, name_of: Callable[[str], str | None]
    ) -> None:
        self._log = log
        self._table = table
        self._name_of = name_of

    def list(self, identity: str | None = None) -> list[DeadLetter]:
        """The records that could not be loaded, of one table or of all, oldest first."""
        return self._log.dead_letters(identity)

    def settle(self, table_info: TableInfo, lsn: int, state: State) -> None:
        """Record that a dead letter was retried or discarded, and drop it from the log. The dead
        letter table keeps it with its new state."""
        identity = table_info.identity
        letters = [one for one in self._log.dead_letters(identity) if one.lsn == lsn]
        self._table.tell([Told(letter, str(table_info.name), state) for letter in letters])
        self._log.drop_dead_letter(identity, lsn)

    def buried(self, identity: str, lsns: Sequence[int]) -> None:
        """Write the new dead letters with these lsns to the dead letter table."""
        wanted = set(lsns)
        letters = [one for one in self._log.dead_letters(identity) if one.lsn in wanted]
        self._tell(letters)

    def tell_all(self) -> None:
        """Write all dead letters to the table: done at the start, since the process before may have
        died before it wrote them."""
        letters = self._log.dead_letters()
        if letters:
            self._tell(letters)

    def tell_again(self) -> None:
        """Write the dead letters whose earlier write failed."""
        self._table.tell_again()

    def _tell(self, letters: Sequence[DeadLetter]) -> None:
        self._table.tell(
            [Told(letter, self._name_of(letter.table_id) or letter.table_id) for letter in letters]
        )
