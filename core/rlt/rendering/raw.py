"""Text as it stands: no chat template, no end of turn.

For base models, and to repeat the prompt construction of the loop that rlt grew from. Only rows of
plain strings can be rendered so.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlt.rendering.datums import Example
from rlt.rendering.messages import Unrenderable, encoded
from rlt.rendering.renderer import Renderer, Tokenizer
from rlt.types import JSON


class RawRenderer(Renderer):
    """Encodes prompt and completion as plain text, each by itself."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        eos = tokenizer.eos_token_id
        self.stop: list[int] = [] if eos is None else [eos]

    def prompt(
        self, prompt: str | Sequence[JSON], tools: Sequence[JSON] | None = None
    ) -> list[int]:
        """Encode the prompt's text."""
        if tools:
            raise Unrenderable("raw text has no place for tools; use the chat template")
        return self._encode(prompt)

    def split(
        self,
        prompt: str | Sequence[JSON],
        completion: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> tuple[Example, list[int]]:
        """Return the ids of the prompt's text and those of the completion's."""
        return Example.of(self.prompt(prompt, tools), []), self._encode(completion)

    def follow_up(
        self,
        history: str | Sequence[JSON],  # noqa: ARG002 - text goes on as it stands
        messages: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,  # noqa: ARG002
    ) -> list[int]:
        """Encode the text that comes after a sampled turn."""
        return self._encode(messages)

    def completion_text(self, completion: str | Sequence[JSON]) -> str:
        """Return the completion, which must be a string."""
        return _string(completion)

    def text(self, tokens: Sequence[int]) -> str:
        """Decode ids, without the token that ended them."""
        ended = bool(tokens) and tokens[-1] in self.stop
        return str(self._tokenizer.decode(list(tokens[:-1] if ended else tokens)))

    def _encode(self, text: str | Sequence[JSON]) -> list[int]:
        return encoded(self._tokenizer, _string(text))


def _string(value: str | Sequence[JSON]) -> str:
    if not isinstance(value, str):
        raise Unrenderable("messages need a chat template; raw text takes strings only")
    return value
