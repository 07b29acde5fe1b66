"""Coverage-guided fuzzing of the reader, the checker and the converter, by hand:

    python tests/dataset/fuzz.py -max_total_time=600 SEEDS…

where SEEDS are folders of files, such as `tests/dataset/corpus`. Needs `atheris`. What it finds
becomes a file of the corpus.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

atheris: Any = import_module("atheris")

with atheris.instrument_imports(include=["rlt.dataset"]):
    from rlt.dataset import open_rows
    from rlt.dataset.containers import rows_of
    from rlt.dataset.convert import Conversion
    from rlt.dataset.inspect import Inspection
    from rlt.dataset.rules import RULES
    from rlt.errors import UsageError
    from rlt.plugins import dataset_types

TYPES = dataset_types()
PATH = Path(tempfile.mkdtemp(), "rows.jsonl")


class Silent:
    def finding(self, finding: Any) -> None:
        assert finding.line >= 1
        assert finding.column >= 1
        assert finding.message.isprintable()

    def file(self, summary: Any) -> None:
        assert summary.valid <= summary.rows

    def end(self) -> None:
        pass


def one_input(content: bytes) -> None:
    PATH.write_bytes(content)
    codes = {
        kind: Inspection(TYPES, kind, Silent(), frozenset(RULES) - {"duplicate-row"})
        .run([str(PATH)])
        for kind in ("auto", *TYPES.names())
    }  # fmt: skip
    for kind in TYPES:
        try:
            rows = open_rows(str(PATH), kind)
        except UsageError:
            assert codes[kind.name]
        else:
            assert codes[kind.name] == 0
            list(rows)
            rows.close()
    out, rejects, read = list[bytes](), list[bytes](), list[Any]()
    conversion = Conversion(TYPES["sdft"], out.append, rejects.append)
    try:
        conversion.run(read.append(raw) or raw for raw in rows_of(str(PATH)))
    except UsageError:
        return
    assert len(out) + len(rejects) == len(read)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
