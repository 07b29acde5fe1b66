"""Libraries that talk while they load, asked not to."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """No progress bars and no advice from transformers inside the block; errors still show."""
    from transformers.utils import logging as library  # noqa: PLC0415 - brings much of transformers

    logging: Any = library  # without types
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
