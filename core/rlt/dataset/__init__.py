"""Lines become rows: read, checked, ordered, and never held in memory.

The reader behind `rlt run` and the checker behind `rlt check` are one. Content is kept as the file
has it: no column types, no nulls that nobody wrote, keys in their order.
"""

from rlt.dataset.order import Order
from rlt.dataset.rows import FileRows, open_rows
from rlt.dataset.types import DatasetType, DatasetTypes

__all__ = ["DatasetType", "DatasetTypes", "FileRows", "Order", "open_rows"]
