"""What a renderer does, and which one a model gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from rlt.errors import UsageError
from rlt.rendering.datums import Example
from rlt.rendering.messages import Unrenderable
from rlt.types import JSON

__all__ = ["Renderer", "Thinking", "Unrenderable", "renderer_for"]

Tokenizer = Any
"""A `transformers` tokenizer."""

Thinking = Literal["auto", "on", "off"]
"""Whether a reasoning model's prompts ask for a thought; `auto`: off where answers have none."""


class Renderer(Protocol):
    """Turns the prompts and completions of rows into token ids, and ids into text."""

    stop: list[int]
    """The ids that end an assistant's turn."""

    @property
    def thinking_off(self) -> bool:
        """Whether a template that asks for thoughts was told not to."""
        return False

    def prompt(
        self, prompt: str | Sequence[JSON], tools: Sequence[JSON] | None = None
    ) -> list[int]:
        """Return the ids to sample a completion from.

        :raises Unrenderable: when the model's template refuses the messages.
        """
        ...

    def split(
        self,
        prompt: str | Sequence[JSON],
        completion: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> tuple[Example, list[int]]:
        """Return (all that comes before the completion's last assistant turn, that turn's ids).

        Earlier assistant turns of the completion have weight 1 in the first part.
        """
        ...

    def demonstration(
        self,
        prompt: str | Sequence[JSON],
        completion: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> Example:
        """Return prompt and completion as one sequence; weight 1 on what the assistant wrote.

        :raises Unrenderable: also when the template rewrites the prompt once it is answered.
        """
        context, last = self.split(prompt, completion, tools)
        return context.then(last, 1.0)

    def follow_up(
        self,
        history: str | Sequence[JSON],
        messages: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> list[int]:
        """Return the ids between a sampled turn, with the token that ended it, and the next one.

        :param history: what came before the sampled turn.
        :param messages: what came after it: a user's text, or messages.
        """
        ...

    def completion_text(self, completion: str | Sequence[JSON]) -> str:
        """Return what the assistant wrote, tool calls included, as the model would write it."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Decode a completion's ids, without the token that ended it."""
        ...


def renderer_for(tokenizer: Tokenizer, thinking: Thinking = "auto") -> Renderer:
    """Return the chat renderer of a tokenizer, or the raw one when it has no chat template."""
    from rlt.rendering.chat import ChatRenderer  # noqa: PLC0415 - they import this module
    from rlt.rendering.raw import RawRenderer  # noqa: PLC0415

    if not tokenizer.chat_template:
        if thinking == "on":
            raise UsageError("--thinking on: the model has no chat template")
        return RawRenderer(tokenizer)
    return ChatRenderer(tokenizer, thinking)
