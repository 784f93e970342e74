"""Completion of `%%paimon` cells, `%paimon` lines and the options of streams in the kernel, for
every frontend.

`statements.completion.completing` says what may come next. Names come from the session's name
cache, which is filled in the background, and from the notebook's variables. Nothing here waits for
a catalog, a store or Spark; without an open session there are keywords, options and verbs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from paimon_magics.magics.name_offers import NameOffers, Offer, matching, open_session
from paimon_magics.magics.namespace import Variables
from paimon_magics.magics.options import CELL_OPTIONS, RESULT_TYPES
from paimon_magics.planning.formatting import shortened
from paimon_magics.planning.reads.stream_points import STREAM_MODES, STREAM_PURPOSES

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.statements.completion.wants import Expected

_ABOUT_MAX = 90
_STREAM_TEXT_MAX = 2000  # of Python before the cursor that is looked at
_LINE = re.compile(r"\s*(?:[^\W\d]\w*\s*=\s*)?%paimon\s")
# A text that has begun where Python names an option of a stream, or gives `scan.mode` its value:
# session.stream("t", **{"…  and  spark.readStream.format("paimon").option("…
_STREAM_TEXT = re.compile(
    r"""\.(?:stream\([^)]*\*\*\{[^})]*?|readStream\b(?:[^()]|\([^()]*\))*\.option\(\s*)
    (?P<mode>["']scan\.mode["']\s*[:,]\s*)?["'](?P<typed>[\w.-]*)\Z""",
    re.VERBOSE,
)


class _NothingElse(list[SimpleCompletion]):
    """No completion, as an answer: IPython, which looks at the length, asks no other completers,
    which would put Python's names into SQL. (An empty text would be an entry of the menu.)"""

    def __len__(self) -> int:
        return 1


class Completer:
    """The completer that IPython asks; registered together with the magics."""

    def __init__(self, magics: PaimonMagics) -> None:
        self._magics = magics

    def matcher(self) -> Any:
        """A matcher of IPython's second API."""

        @context_matcher(identifier="paimon_magics", priority=100)  # type: ignore[untyped-decorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            lines = context.full_text.split("\n")
            cursor = sum(len(line) + 1 for line in lines[: context.cursor_line])
            place = cursor + context.cursor_position
            typed, offers = self.offers(context.full_text, place)
            completions = [
                SimpleCompletion(offer.text, type=_in_a_menu(offer.about)) for offer in offers
            ]
            is_ours = bool(offers) or self.is_ours(context.full_text, place)
            return {
                "completions": completions or (_NothingElse() if is_ours else []),
                "matched_fragment": typed,
                "suppress": is_ours,
                "ordered": True,
            }

        return match

    def is_ours(self, text: str, cursor: int) -> bool:
        """Whether the offset `cursor` is in a `%%paimon` cell, or after `%paimon`. Not after
        `connect`: its arguments may be folders, which IPython completes."""
        if text.startswith("%%paimon"):
            return True
        line = _verb_line(text, cursor)
        return line is not None and not line.startswith("connect ")

    def offers(self, text: str, cursor: int) -> tuple[str, list[Offer]]:
        """Return the beginning of the word before the offset `cursor` of a cell, and its
        completions."""
        if text.startswith("%%paimon"):
            head, newline, body = text.partition("\n")
            if cursor <= len(head):
                return self._of_options(head[:cursor])
            return self._of_statements(body, cursor - len(head) - len(newline))
        line = _verb_line(text, cursor)
        return _of_streams(text[:cursor]) if line is None else self._of_verbs(line)

    # ---- the first line, and verbs ----

    def _of_options(self, line: str) -> tuple[str, list[Offer]]:
        words = line.split(" ")
        typed = words[-1]
        if len(words) < 2:
            return "", []
        if words[-2] in ("-t", "--type"):
            return typed, matching(typed, (Offer(name, "type") for name in RESULT_TYPES))
        if words[-2] in ("-o", "--out", "--limit"):
            return typed, []  # the value is a name or a number
        flags = [
            Offer(flag, option.purpose)
            for option in CELL_OPTIONS
            for flag in option.flags
            if flag.startswith("--") or typed == "-"
        ]
        return typed, matching(typed, flags)

    def _of_verbs(self, line: str) -> tuple[str, list[Offer]]:
        from paimon_magics.magics.line import VERBS
        from paimon_magics.magics.verb import expected_by

        name, blank, rest = line.partition(" ")
        if not blank:
            return name, matching(name, (Offer(verb.name, verb.purpose) for verb in VERBS))
        verb = next((verb for verb in VERBS if verb.name == name), None)
        if verb is None:
            return rest.rpartition(" ")[2], []
        if verb.name in ("config", "connect"):
            return self._of_settings(verb.name, rest.rpartition(" ")[2])
        expected = expected_by(verb, rest)
        match expected:
            case str(text):  # completed like the end of that statement
                return self._of_statements(text, len(text))
            case typed, tuple(offers):
                return typed, matching(typed, (Offer(offer) for offer in offers))
            case _:
                return expected.typed, self._known(expected)

    def _of_settings(self, verb: str, typed: str) -> tuple[str, list[Offer]]:
        traits = self._magics.traits(config=True)
        key, equals, value = typed.partition("=")
        if equals:
            known = {"coordinator": ("embedded", "in-process"), "result_type": RESULT_TYPES}
            values = known.get(key, ())
            if key in traits and isinstance(traits[key].default_value, bool):
                values = ("True", "False")
            return value, matching(value, map(Offer, values))
        end = "=" if verb == "connect" else ""
        names = [Offer(name + end, trait.help) for name, trait in sorted(traits.items())]
        if verb == "connect":
            names.append(Offer("spark=", "the variable with a SparkSession"))
            names.append(Offer("--close", "closes the open connection first"))
        return typed, matching(typed, names)

    # ---- statements ----

    def _of_statements(self, text: str, cursor: int) -> tuple[str, list[Offer]]:
        from paimon_magics.statements.completion.completing import expected_at

        expected = expected_at(text, cursor)
        return expected.typed, self._known(expected)

    def _known(self, expected: Expected) -> list[Offer]:
        if not expected.wants:
            return []
        names = NameOffers(open_session(), Variables(self._magics.namespace_shell), expected)
        offers = names.all()
        if names.have_come():
            offers = names.all()
        return offers


def _of_streams(text: str) -> tuple[str, list[Offer]]:
    """The options of a stream, or its modes, where `text` ends in the beginning of one."""
    match = _STREAM_TEXT.search(text, max(0, len(text) - _STREAM_TEXT_MAX))
    if match is None:
        return "", []
    typed = match["typed"]
    if match["mode"]:
        return typed, matching(typed, map(Offer, STREAM_MODES))
    return typed, matching(typed, (Offer(*item) for item in STREAM_PURPOSES.items()))


def _verb_line(text: str, cursor: int) -> str | None:
    """The text between `%paimon` and the cursor in the cursor's line; None without `%paimon`."""
    match = _LINE.match(text, text.rfind("\n", 0, cursor) + 1)
    if match is None or match.end() > cursor or "\n" in match[0].strip():
        return None
    return text[match.end() : cursor]


def _in_a_menu(about: str) -> str | None:
    """The text beside a completion, with no-break spaces: JupyterLab's menu breaks at blanks."""
    return shortened(about, _ABOUT_MAX).replace(" ", "\u00a0") or None
