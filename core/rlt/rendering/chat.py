"""The model's own chat template, held to one property.

What a model is trained on must continue what it is sampled from: the text of an answered prompt has
to start with the text of the open one. Some templates rewrite history (they drop old thoughts, or
open a turn with `<think>` and close it differently); such a row is refused, not trained on crooked.

Prompts of reasoning models ask for a thought. Demonstrations rarely have one, so thinking is
switched off unless `thinking="on"` asks for it; then every assistant turn needs its thought, in
`reasoning_content` or as `<think>…</think>` in its content. A thought is never lost silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlt.errors import UsageError
from rlt.rendering.datums import Example
from rlt.rendering.messages import Unrenderable, as_messages, encoded
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
_THOUGHT = "rlt_thought"
_WRITTEN: JSON = {**_ANSWER, "reasoning_content": _THOUGHT, "thinking": _THOUGHT}
_SPOKEN: JSON = {**_ANSWER, "content": f"<think>\n{_THOUGHT}\n</think>\n\n{_PROBE}"}
_SWITCH: dict[bool, dict[str, Any]] = {
    on: {"enable_thinking": on, "thinking": on} for on in (True, False)
}
"""What templates call the switch: Qwen3 and Nemotron the one, DeepSeek and Granite the other."""


class ChatRenderer(Renderer):
    """Renders messages by the tokenizer's chat template."""

    def __init__(self, tokenizer: Tokenizer, thinking: Thinking = "auto") -> None:
        """Find out what the tokenizer's template does.

        :raises UsageError: when `thinking` is a choice that the template does not have.
        """
        self._tokenizer = tokenizer
        self._arguments: dict[str, Any] = {}
        self.native_tools = self._writes_tools()
        """Whether the template itself writes tools and tool calls."""
        self._switchable = self._opening(_SWITCH[True]) != self._opening(_SWITCH[False])
        self._arguments, self.thinking = self._thinking(thinking)
        """`thinking`: whether prompts ask for a thought."""
        self._writes = {
            place: _THOUGHT in self._apply([_USER, probe], None)
            for place, probe in (("reasoning_content", _WRITTEN), ("content", _SPOKEN))
        }
        self._end = self._end_of_turn()
        eos = tokenizer.eos_token_id
        self.stop = sorted({*([] if eos is None else [eos]), *self._encode(self._end)})

    @property
    def thinking_off(self) -> bool:
        """Whether the template's thoughts are switched off."""
        return self._switchable and not self.thinking

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
        self._require_thought(turn)
        start = self._render(history, tools, is_open=True)
        whole = self._render([*history, turn], tools)
        if not (start.startswith(done) and whole.startswith(start)):
            raise Unrenderable("the chat template rewrites earlier turns once they are answered")
        answer = whole[len(start) :]
        if start.rstrip().endswith("<think>") and answer.lstrip().startswith("<think>"):
            raise Unrenderable("the chat template would open the thought twice")
        text, end, _ = answer.rpartition(self._end)
        if not end:
            raise Unrenderable("the chat template closes this turn in a way of its own")
        return start[len(done) :], text + end

    def _require_thought(self, turn: JSON) -> None:
        """Refuse a turn that has no thought where there must be one, or one that would be lost."""
        written, spoken = bool(turn.get("reasoning_content")), "</think>" in turn["content"]
        if self.thinking and not (written or spoken):
            raise Unrenderable(
                "the prompt asks for a thought, so each assistant turn needs its thought: "
                "reasoning_content, or <think>…</think> in its content"
            )
        if self.thinking_off and (written or spoken):
            raise Unrenderable(
                "an assistant turn has a thought; use --thinking on, or take the thought out"
            )
        if written and not (self._writes["reasoning_content"] or self._spoken_only):
            raise Unrenderable(
                "the chat template leaves out reasoning_content; take it out, or put it into the "
                "content"
            )
        if spoken and not self._writes["content"]:
            raise Unrenderable("the chat template leaves out the thought in a turn's content")

    @property
    def _spoken_only(self) -> bool:
        """Whether the template of a reasoning model takes thoughts in the content alone."""
        return self.thinking and self._writes["content"] and not self._writes["reasoning_content"]

    def _answer_text(self, turn: JSON) -> str:
        if not (turn.get("tool_calls") or self.thinking):
            return str(turn["content"])
        if not self.native_tools:
            turn = write_out([turn], None)[0]
        try:
            text = self._turn(self._render([_USER], None, is_open=True), [_USER], turn, None)[1]
        except Unrenderable:
            texts = [turn["content"], *map(call_text, turn.get("tool_calls", ()))]
            return "\n".join(filter(None, texts))
        opened = "" if "<think>" in text or not self.thinking else "<think>\n"
        return opened + text.removesuffix(self._end)

    def _render(
        self, messages: Sequence[JSON], tools: Sequence[JSON] | None, *, is_open: bool = False
    ) -> str:
        if self._spoken_only:
            messages = [_spoken(message) for message in messages]
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
        return encoded(self._tokenizer, text)

    # ---- what kind of template this is, found by rendering with it

    def _writes_tools(self) -> bool:
        call = {"role": "assistant", "content": "", "tool_calls": [_PROBE_CALL]}
        result = {"role": "tool", "content": "42424242", "name": _PROBE}
        try:
            text = self._apply([_USER, call, result], [_PROBE_TOOL])
        except Unrenderable:
            return False
        return text.count(_PROBE) >= 2 and "42424242" in text

    def _thinking(self, wanted: Thinking) -> tuple[dict[str, Any], bool]:
        """Return the template's arguments for a choice, and whether prompts then ask for a thought.

        `auto` is off where that can be chosen.

        :raises UsageError: for a choice that the template does not have.
        """
        always = self._opening({}).rstrip().endswith("<think>") and not self._switchable
        if wanted == "off" and always:
            raise UsageError("--thinking off: the model's chat template always asks for a thought")
        if wanted == "on" and not (always or self._switchable):
            raise UsageError("--thinking on: the model's chat template has no thoughts")
        if wanted == "on":
            if not self._keeps_thoughts():
                raise UsageError("--thinking on: the model's chat template leaves out thoughts")
            return _SWITCH[True], True
        return (_SWITCH[False] if self._switchable else {}), always

    def _keeps_thoughts(self) -> bool:
        """Say whether a thought, in one of its places, continues the prompt that asks for it."""
        start = self._opening(_SWITCH[True])
        texts = [self._apply([_USER, answer], None) for answer in (_WRITTEN, _SPOKEN)]
        return any(text.startswith(start) and _THOUGHT in text[len(start) :] for text in texts)

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


def _spoken(message: JSON) -> JSON:
    """Return a message with its thought in the content."""
    thought = message.get("reasoning_content")
    if not thought:
        return message
    return {**message, "content": f"<think>\n{thought}\n</think>\n\n{message['content']}"}
