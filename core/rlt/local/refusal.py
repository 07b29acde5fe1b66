"""How the engine says no.

A request that cannot be right is *refused*: the message is for the person who wrote it, and the
SDK raises it as `RequestFailedError` with category "user". Everything else that goes wrong is a
fault of the engine and has category "server".
"""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault
    """The request is wrong; the message says what was expected and what was found."""

    status = 400


class NotFound(Refusal):
    """The request names something that does not exist (any more)."""

    status = 404
