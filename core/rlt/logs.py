"""What the program says about itself: structlog, on standard error.

Libraries that use the standard `logging` or `warnings` modules, the SDK among them, go through the
same renderer, so that one format holds for every line. Results go to standard output instead.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

DEFAULT: tuple[Format, str] = ("text", "info")
chosen = DEFAULT
"""The format and level in force."""

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
]


def configure(fmt: Format = "text", level: str = "info") -> None:
    """Send all logs to standard error, for a person (`text`) or a machine (`json`, one a line)."""
    global chosen  # noqa: PLW0603 - logging is the process's
    chosen = (fmt, level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.processors.TimeStamper(
                    fmt="iso" if fmt == "json" else "%H:%M:%S", utc=fmt == "json"
                ),
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderer(fmt),
            ],
            foreign_pre_chain=_SHARED,
        )
    )
    handler.addFilter(_routine_of_others)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("rlt").setLevel(level.upper())
    if level == "debug":
        root.setLevel(logging.INFO)
    logging.captureWarnings(True)


def get_logger(name: str = "rlt") -> Any:
    """Return a structlog logger under `rlt`."""
    return structlog.stdlib.get_logger(name if name.startswith("rlt") else f"rlt.{name}")


def _renderer(fmt: Format) -> list[structlog.typing.Processor]:
    if fmt == "json":
        return [
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(default=str),
        ]
    colors = sys.stderr.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, sort_keys=False)]


def _routine_of_others(record: logging.LogRecord) -> bool:
    """Drop what a library warns of while all is well.

    The SDK says "because of try_again" each time a long request is simply not ready yet, and tells
    a failed request on a line of its own before it raises the error that the run then tells.
    """
    said = ("because of try_again", "Request failed with non-retryable error")
    message = record.getMessage()
    return not (record.name.startswith("tinker.") and any(words in message for words in said))
