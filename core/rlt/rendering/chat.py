"""The model's own chat template, held to one property.

What a model is trained on must continue what it is sampled from: the text of an answered prompt has
to start with the text of the open one. Some templates rewrite history (they drop old thoughts, or
open a turn with `<think>` and close it differently); such a row is refused, not trained on crooked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlt.rendering.datums import Example
from rlt.rendering.messages import Unrenderable, as_messages
from rlt.rendering.renderer import Tokenizer
from rlt.rendering.tool_text import call_text, write_out
from rlt.types import JSON

_PROBE = "rlt_probe"
_PROBE_TOOL: JSON = {
    "type": "function",
    "function": {"name": _PROBE, "description": "", "parameters": {"type": "object"}},
}
_PROBE_CALL: JSON = {"type": "function", "function": {"name": _PROBE, "arguments": {}}}
_USER: JSON = {"role": "user", "content": "?"}


class ChatRenderer:
    """Renders messages by the tokenizer's chat template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._arguments: dict[str, Any] = {}
        self.native_tools = self._writes_tools()
        """Whether the template itself writes tools and tool calls."""
        self._arguments = self._prefix_arguments()
        self._end = self._end_of_turn()
        eos = tokenizer.eos_token_id
        self.stop: list[int] = sorted({*([] if eos is None else [eos]), *self._encode(self._end)})

    @property
    def thinking_off(self) -> bool:
        """Whether the template's thoughts had to be switched off to keep prompts continuable."""
        return bool(self._arguments)

    def prompt(
        self, prompt: str | Sequence[JSON], tools: Sequence[JSON] | None = None
    ) -> list[int]:
        """Return the ids of the open conversation, up to where the assistant begins."""
        return self._encode(self._render(as_messages(prompt, "user"), tools, is_open=True))

    def split(
        self,
        prompt: str | Sequence[JSON],
        completion: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> tuple[Example, list[int]]:
        """Return the conversation up to its last assistant turn, and that turn's ids."""
        history = as_messages(prompt, "user")
        done = self._render(history, tools, is_open=True)
        context, last = Example.of(self._encode(done), []), list[int]()
        for turn in as_messages(completion, "assistant"):
            if turn["role"] == "assistant":
                given, answer = self._turn(done, history, turn, tools)
                context = context.then(last, 1.0).then(self._encode(given), 0.0)
                last = self._encode(answer)
                done += given + answer
            history.append(turn)
        return context, last

    def demonstration(
        self,
        prompt: str | Sequence[JSON],
        completion: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> Example:
        """Return the whole conversation; every assistant turn of the completion has weight 1."""
        context, last = self.split(prompt, completion, tools)
        return context.then(last, 1.0)

    def follow_up(
        self,
        history: str | Sequence[JSON],
        messages: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> list[int]:
        """Return the ids between a sampled turn, with the token that ended it, and the next one.

        The turn itself is rendered as a placeholder: nothing that was sampled is encoded again.
        """
        turn = {"role": "assistant", "content": _PROBE}
        turns = [*as_messages(history, "user"), turn, *as_messages(messages, "user")]
        text = self._render(turns, tools, is_open=True)
        _, _, after = text.rpartition(_PROBE)
        _, end, given = after.partition(self._end)
        if not end:
            raise Unrenderable("the chat template does not close the assistant's turns")
        return self._encode(given)

    def completion_text(self, completion: str | Sequence[JSON]) -> str:
        """Return what the assistant wrote, tool calls as this model writes them."""
        turns = [t for t in as_messages(completion, "assistant") if t["role"] == "assistant"]
        return "\n".join(self._answer_text(turn) for turn in turns)

    def text(self, tokens: Sequence[int]) -> str:
        """Decode a completion's ids, without the token that ended it."""
        ended = bool(tokens) and tokens[-1] in self.stop
        return str(self._tokenizer.decode(list(tokens[:-1] if ended else tokens)))

    def _turn(
        self, done: str, history: Sequence[JSON], turn: JSON, tools: Sequence[JSON] | None
    ) -> tuple[str, str]:
        """Return (what comes between `done` and the turn, the turn with its end)."""
        start = self._render(history, tools, is_open=True)
        whole = self._render([*history, turn], tools)
        if not (start.startswith(done) and whole.startswith(start)):
            raise Unrenderable("the chat template rewrites earlier turns once they are answered")
        answer = whole[len(start) :]
        return start[len(done) :], answer[: answer.rindex(self._end) + len(self._end)]

    def _answer_text(self, turn: JSON) -> str:
        if not turn.get("tool_calls"):
            return str(turn["content"])
        if not self.native_tools:
            return str(write_out([turn], None)[0]["content"])
        try:
            return self._turn(self._render([_USER], None, is_open=True), [_USER], turn, None)[1][
                : -len(self._end)
            ]
        except Unrenderable:
            return "\n".join([turn["content"], *map(call_text, turn["tool_calls"])])

    def _render(
        self, messages: Sequence[JSON], tools: Sequence[JSON] | None, *, is_open: bool = False
    ) -> str:
        if not self.native_tools:
            messages, tools = write_out(messages, tools), None
        return self._apply(messages, tools, is_open=is_open)

    def _apply(
        self, messages: Sequence[JSON], tools: Sequence[JSON] | None, *, is_open: bool = False
    ) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=list(tools) if tools else None,
                    tokenize=False,
                    add_generation_prompt=is_open,
                    **self._arguments,
                )
            )
        except Exception as error:  # a template may raise anything, jinja's errors included
            raise Unrenderable(f"the chat template refuses it: {error}") from error

    def _encode(self, text: str) -> list[int]:
        return (
            list(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))
            if text
            else []
        )

    # ---- what kind of template this is, found by rendering with it

    def _writes_tools(self) -> bool:
        call = {"role": "assistant", "content": "", "tool_calls": [_PROBE_CALL]}
        result = {"role": "tool", "content": "42424242", "name": _PROBE}
        try:
            text = self._apply([_USER, call, result], [_PROBE_TOOL])
        except Unrenderable:
            return False
        return text.count(_PROBE) >= 2 and "42424242" in text

    def _prefix_arguments(self) -> dict[str, Any]:
        """Find template arguments under which an answer continues its prompt."""
        answer = {"role": "assistant", "content": _PROBE}
        for arguments in ({}, {"enable_thinking": False}):
            self._arguments = arguments
            opened = self._apply([_USER], None, is_open=True)
            if self._apply([_USER, answer], None).startswith(opened):
                return arguments
        return {}

    def _end_of_turn(self) -> str:
        """Return the text of the token that the template closes an assistant's turn with."""
        text = self._apply([_USER, {"role": "assistant", "content": _PROBE}], None)
        tail = self._encode(text[text.rindex(_PROBE) + len(_PROBE) :].lstrip())
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        if tail and tail[0] in special:
            return str(self._tokenizer.decode([tail[0]]))
        raise Unrenderable("the chat template closes an assistant's turn with no token of its own")
