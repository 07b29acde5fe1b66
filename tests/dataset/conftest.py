"""What the tests of datasets share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from rlt.dataset import DatasetType, DatasetTypes
from rlt.dataset.findings import Finding
from rlt.dataset.inspect import Inspection
from rlt.dataset.report import FileSummary
from rlt.dataset.rules import RULES
from rlt.plugins import dataset_types

settings.register_profile("long", max_examples=20_000)  # pytest --hypothesis-profile=long

DATA = Path(__file__).parents[3] / "shared" / "data"


class Collected:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.files: list[FileSummary] = []
        self.unreadable: list[str] = []

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def file(self, summary: FileSummary) -> None:
        self.files.append(summary)

    def end(self) -> None:
        pass

    @property
    def rules(self) -> list[str]:
        return [finding.rule for finding in self.findings]


@pytest.fixture
def types() -> DatasetTypes:
    return dataset_types()


@pytest.fixture
def sdft(types: DatasetTypes) -> DatasetType:
    return types["sdft"]


@pytest.fixture
def inspected(tmp_path: Path) -> Callable[..., Collected]:
    """Check bytes, or a file, as `rlt check` does."""

    def call(content: bytes | Path, kind: str = "auto") -> Collected:
        path = content if isinstance(content, Path) else tmp_path / "rows.jsonl"
        if isinstance(content, bytes):
            path.write_bytes(content)
        report = Collected()
        inspection = Inspection(dataset_types(), kind, report, frozenset(RULES))
        inspection.run([str(path)])
        report.unreadable = inspection.unreadable
        return report

    return call


@pytest.fixture
def data() -> Path:
    """The real data, which lives beside the repository."""
    if not DATA.is_dir():
        pytest.fail(f"the real data is not at {DATA}; these tests read it from there")
    return DATA
