"""The model's own chat template, held to one property.

What a model is trained on must continue what it is sampled from: the text of an answered prompt has
to start with the text of the open one. Some templates rewrite history (they drop old thoughts, or
open a turn with `<think>` and close it differently); such a row is refused, not trained on crooked.

Templates of reasoning models open the assistant's turn with a thought. Demonstrations rarely have
one, so by default thinking is switched off where an answer without a thought would not continue the
prompt; with `thinking="on"` every assistant turn needs its thought, in `reasoning_content` or as
`<think>…</think>` in its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlt.errors import UsageError
from rlt.rendering.datums import Example
from rlt.rendering.messages import Unrenderable, as_messages
from rlt.rendering.renderer import Renderer, Thinking, Tokenizer
from rlt.rendering.tool_text import call_text, write_out
from rlt.types import JSON

_PROBE = "rlt_probe"
_PROBE_TOOL: JSON = {
    "type": "function",
    "function": {"name": _PROBE, "description": "", "parameters": {"type": "object"}},
}
_PROBE_CALL: JSON = {"type": "function", "function": {"name": _PROBE, "arguments": {}}}
_USER: JSON = {"role": "user", "content": "?"}
_ANSWER: JSON = {"role": "assistant", "content": _PROBE}
_THOUGHTS: dict[str, dict[str, Any]] = {
    "on": {"enable_thinking": True, "thinking": True},
    "off": {"enable_thinking": False, "thinking": False},
}
"""What templates call the switch: Qwen3 and Nemotron the one, DeepSeek and Granite the other."""
_REWRITTEN = "the chat template rewrites earlier turns once they are answered"


class ChatRenderer(Renderer):
    """Renders messages by the tokenizer's chat template."""

    def __init__(self, tokenizer: Tokenizer, thinking: Thinking = "auto") -> None:
        """Find out what the tokenizer's template does.

        :raises UsageError: when `thinking` is "on" and the template has none.
        """
        self._tokenizer = tokenizer
        self._arguments: dict[str, Any] = {}
        self.native_tools = self._writes_tools()
        """Whether the template itself writes tools and tool calls."""
        self._arguments = self._thinking_arguments(thinking)
        self._end = self._end_of_turn()
        eos = tokenizer.eos_token_id
        self.stop: list[int] = sorted({*([] if eos is None else [eos]), *self._encode(self._end)})

    @property
    def thinking_off(self) -> bool:
        """Whether the template's thoughts are switched off."""
        return self._arguments == _THOUGHTS["off"]

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

    def follow_up(
        self,
        history: str | Sequence[JSON],
        messages: str | Sequence[JSON],
        tools: Sequence[JSON] | None = None,
    ) -> list[int]:
        """Return the ids between a sampled turn, with the token that ended it, and the next one.

        The turn itself is rendered as a placeholder: nothing that was sampled is encoded again.
        """
        turns = [*as_messages(history, "user"), _ANSWER, *as_messages(messages, "user")]
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
        if not whole.startswith(start):
            raise Unrenderable(self._crooked(turn))
        if not start.startswith(done):
            raise Unrenderable(_REWRITTEN)
        answer = whole[len(start) :]
        if _thought(turn) not in answer:
            raise Unrenderable("the chat template leaves out the assistant's reasoning_content")
        return start[len(done) :], answer[: answer.rindex(self._end) + len(self._end)]

    def _crooked(self, turn: JSON) -> str:
        """Say why an answered turn does not continue its open prompt."""
        thinks = bool(_thought(turn)) or "</think>" in turn["content"]
        if self._arguments == _THOUGHTS["on"] and not thinks:
            return (
                "with --thinking on, an assistant turn needs its thought: reasoning_content, or "
                "<think>…</think> in its content"
            )
        if self.thinking_off and thinks:
            return "an assistant turn has a thought; train with --thinking on, or take it out"
        return _REWRITTEN

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

    def _thinking_arguments(self, thinking: Thinking) -> dict[str, Any]:
        """Return the template's arguments for a choice; `auto` takes what keeps the prefix."""
        opened = {name: self._opening(arguments) for name, arguments in _THOUGHTS.items()}
        if thinking != "auto":
            if thinking == "on" and opened["on"] == opened["off"]:
                raise UsageError("--thinking on: the model's chat template has no thoughts")
            return _THOUGHTS[thinking]
        for arguments in ({}, _THOUGHTS["off"]):
            start = self._opening(arguments)
            if self._apply([_USER, _ANSWER], None).startswith(start):
                return arguments
        return {}

    def _opening(self, arguments: dict[str, Any]) -> str:
        self._arguments = arguments
        return self._apply([_USER], None, is_open=True)

    def _end_of_turn(self) -> str:
        """Return the text of the token that the template closes an assistant's turn with."""
        text = self._apply([_USER, _ANSWER], None)
        tail = self._encode(text[text.rindex(_PROBE) + len(_PROBE) :].lstrip())
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        if tail and tail[0] in special:
            return str(self._tokenizer.decode([tail[0]]))
        raise Unrenderable("the chat template closes an assistant's turn with no token of its own")


def _thought(turn: JSON) -> str:
    return str(turn.get("reasoning_content") or "").strip()
