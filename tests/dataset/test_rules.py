"""Every rule has a page, and what the page shows is true."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlt.dataset.rules import RULES, chosen
from rlt.errors import UsageError

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def example(rule: str, kind: str) -> bytes | None:
    page = (PAGES / "rules" / f"{rule}.md").read_text()
    found = re.search(rf"```jsonl {kind}\n(.*?)```", page, re.DOTALL)
    return found.group(1).encode() if found else None


def test_every_rule_has_a_page_and_a_line_in_the_reference() -> None:
    assert {page.stem for page in (PAGES / "rules").glob("*.md")} == set(RULES)
    reference = (PAGES / "datasets.md").read_text()
    for rule in RULES.values():
        assert (
            f"| [{rule.id}](rules/{rule.id}.md) | {rule.severity} | {rule.summary} |" in reference
        )


@pytest.mark.parametrize("rule", sorted(set(RULES) - {"leak", "too-long", "nothing-to-train"}))
def test_the_examples_of_a_page_are_reported_and_fine(rule: str, inspected: Callable) -> None:
    bad, good = example(rule, "bad"), example(rule, "good")
    assert bad is not None
    assert good is not None
    kind = "auto" if rule in ("identical-pair", "other-format") else "sdft"
    assert rule in inspected(bad, kind).rules
    assert inspected(good, kind).rules == []


def test_rules_are_selected_and_ignored_by_id() -> None:
    assert chosen(None, None) == set(RULES)
    assert chosen("leak, encoding", None) == {"leak", "encoding"}
    assert chosen(None, "leak") == set(RULES) - {"leak"}
    with pytest.raises(UsageError, match="no rule is called 'lek'; did you mean 'leak'"):
        chosen("lek", None)
