"""Everything `rlt check` can say, as a list.

A rule has an id that never changes, a severity and a page in the documentation. An error means that
the row cannot be trained on as it stands, and `rlt run` refuses the file; a warning means that it
can, but is probably not what was meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlt.dataset.spelling import closest
from rlt.errors import UsageError

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Rule:
    """One kind of finding."""

    id: str
    summary: str
    severity: Severity = "error"


_ALL = (
    Rule("json-syntax", "A line is not JSON."),
    Rule("encoding", "A line is not UTF-8, or holds half of a surrogate pair."),
    Rule("not-an-object", "A line is JSON, but not an object."),
    Rule("duplicate-key", "An object has the same key twice; all but the last would be lost."),
    Rule("non-finite-number", "A number is NaN, infinite or too large to be read."),
    Rule("missing-field", "A required key is missing."),
    Rule("wrong-type", "A value has another JSON type than the schema asks for."),
    Rule("invalid-value", "A value breaks another condition of the type's schema."),
    Rule("empty-text", "A text has nothing in it."),
    Rule("unknown-role", "A message's role is none that chat templates know."),
    Rule("misspelt-field", "A key is one slip away from a known one.", "warning"),
    Rule("bad-tool-arguments", "A tool call's arguments are not what its function takes."),
    Rule("undefined-tool", "A called function is not among the row's tools."),
    Rule("tool-result-without-call", "A tool's message answers no earlier call."),
    Rule(
        "mixed-argument-encoding",
        "Arguments are objects in some calls and JSON strings in others.",
        "warning",
    ),
    Rule("no-assistant-turn", "A completion holds no message of the assistant."),
    Rule("identical-pair", "The better and the worse answer are the same."),
    Rule("duplicate-row", "A row is the same, byte for byte, as an earlier one."),
    Rule("leak", "A held-out prompt is also in the training file."),
    Rule("no-rows", "The file holds no rows."),
    Rule("other-format", "The file is in another tool's format."),
    Rule("too-long", "A row has more tokens than the model's context."),
    Rule("nothing-to-train", "No token is left to train on."),
)

RULES = {rule.id: rule for rule in _ALL}
"""Every rule by its id."""


def severity(rule: str) -> Severity:
    """Return how bad a finding of this rule is."""
    return RULES[rule].severity


def chosen(select: str | None, ignore: str | None) -> frozenset[str]:
    """Return the rules to apply, from two comma-separated lists as the command line takes them.

    :raises UsageError: when one is unknown.
    """
    return frozenset(_ids(select) if select else RULES) - frozenset(_ids(ignore or ""))


def _ids(text: str) -> list[str]:
    ids = [part.strip() for part in text.split(",") if part.strip()]
    for rule in ids:
        if rule not in RULES:
            close = closest(rule, RULES)
            hint = f"; did you mean {close!r}?" if close else f" (known: {', '.join(RULES)})"
            raise UsageError(f"no rule is called {rule!r}{hint}")
    return ids
