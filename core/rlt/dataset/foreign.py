"""Files that are no lines of JSON at all: told from how they begin, and reported once."""

from __future__ import annotations

from rlt.dataset.syntax import Fault


def whole_file_fault(first: bytes) -> Fault | None:
    """Say what is wrong with a whole file whose first row is `first`; None when nothing is."""
    start = first.strip()
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Fault("encoding", 0, "the file is UTF-16, from byte offset 0 on", "save it as UTF-8")
    if first.startswith(b"PAR1"):
        return Fault("other-format", 0, "the file is Parquet", "`rlt convert` reads it")
    if start == b"{" or (start.startswith(b"[") and not start.endswith(b"]")):
        text = "the file is one JSON document over several lines, not one row a line"
        return Fault("json-syntax", 0, text, "`rlt convert` reads it and writes one row a line")
    return None
