"""What is trained continues, token for token, what is sampled from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlt.rendering import ChatRenderer, Example, RawRenderer, Unrenderable, renderer_for

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
}
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TRACE = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "add", "content": "3"},
    {"role": "assistant", "content": "The sum is 3."},
]

NATIVE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t.function | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:{% for k, v in "
    "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}</call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think></think>"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>"
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}<think></think>"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not "
    "loop.last %}(earlier answer){% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def templated(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def with_template(template: str | None) -> ChatRenderer:
        monkeypatch.setattr(tokenizer, "chat_template", template)
        return ChatRenderer(tokenizer)

    return with_template


def learnt(renderer: Any, example: Example) -> str:
    ids = [t for t, w in zip(example.tokens, example.weights, strict=True) if w]
    return str(renderer._tokenizer.decode(ids))


def test_the_prompt_trained_on_is_the_prompt_sampled_from(tokenizer: Any) -> None:
    renderer = ChatRenderer(tokenizer)
    prompt = renderer.prompt("Which is it? ")
    example = renderer.demonstration("Which is it? ", "four")
    assert example.tokens[: len(prompt)] == prompt
    assert set(example.weights[: len(prompt)]) == {0}


def test_the_end_of_turn_is_learnt_and_what_the_template_adds_after_it_is_not(
    tokenizer: Any,
) -> None:
    renderer = ChatRenderer(tokenizer)
    example = renderer.demonstration("Hi", "Hello.")
    assert learnt(renderer, example) == "Hello.<|im_end|>"
    assert example.tokens[-1] in renderer.stop


def test_only_the_assistants_turns_of_a_trace_are_learnt(tokenizer: Any) -> None:
    renderer = ChatRenderer(tokenizer)
    example = renderer.demonstration("1 + 2?", TRACE, [TOOL])
    text = learnt(renderer, example)
    assert '"arguments": {"a": 1, "b": 2}' in text
    assert text.endswith("The sum is 3.<|im_end|>")
    assert "tool_response" not in text


def test_a_template_without_tools_gets_them_written_out(tokenizer: Any) -> None:
    renderer = ChatRenderer(tokenizer)
    assert not renderer.native_tools
    whole = tokenizer.decode(renderer.demonstration("1 + 2?", TRACE, [TOOL]).tokens)
    assert '"description": "Adds."' in whole
    assert "<tool_response>\n3\n</tool_response>" in whole


def test_a_template_with_tools_is_left_to_write_them(templated: Any) -> None:
    renderer = templated(NATIVE)
    assert renderer.native_tools
    text = learnt(renderer, renderer.demonstration("1 + 2?", TRACE, [TOOL]))
    assert text == "<call>add:a=1;b=2;</call><|im_end|>The sum is 3.<|im_end|>"


@pytest.mark.parametrize("template", [None, NATIVE])
def test_arguments_may_be_a_json_string_or_an_object(
    tokenizer: Any, templated: Any, template: str | None
) -> None:
    renderer = templated(template or tokenizer.chat_template)
    as_object = json.loads(json.dumps(TRACE))
    as_object[0]["tool_calls"][0]["function"]["arguments"] = {"a": 1, "b": 2}
    assert renderer.demonstration("?", TRACE, [TOOL]) == renderer.demonstration(
        "?", as_object, [TOOL]
    )


def test_a_thinking_template_is_switched_off_where_it_would_break_the_prefix(
    templated: Any,
) -> None:
    renderer = templated(THINKING)
    assert renderer.thinking_off
    prompt = renderer.prompt("Hi")
    assert renderer.demonstration("Hi", "Hello.").tokens[: len(prompt)] == prompt


def test_a_template_that_rewrites_history_is_refused(templated: Any) -> None:
    renderer = templated(FORGETFUL)
    turns = [
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Two."},
    ]
    with pytest.raises(Unrenderable, match="rewrites earlier turns"):
        renderer.demonstration("Count.", turns)


def test_content_parts_of_text_are_joined_and_others_refused(tokenizer: Any) -> None:
    renderer = ChatRenderer(tokenizer)
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    message = [{"role": "user", "content": parts}]
    assert renderer.prompt(message) == renderer.prompt("Hello")
    with pytest.raises(Unrenderable, match="image_url is not text"):
        renderer.prompt([{"role": "user", "content": [{"type": "image_url"}]}])


def test_the_last_turn_is_split_from_what_comes_before_it(tokenizer: Any) -> None:
    renderer = ChatRenderer(tokenizer)
    context, answer = renderer.split("1 + 2?", TRACE, [TOOL])
    assert renderer.text(answer) == "The sum is 3."
    assert "<tool_call>" in learnt(renderer, context)
    assert context.then(answer, 1.0) == renderer.demonstration("1 + 2?", TRACE, [TOOL])


def test_braces_in_the_data_are_only_text(tokenizer: Any) -> None:
    renderer = ChatRenderer(tokenizer)
    text = "{completion} {{ messages }} {% raw %} {0}"
    assert renderer.text(renderer.split("?", text)[1]) == text


def test_a_model_without_a_template_gets_raw_text(tokenizer: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", None)
    renderer = renderer_for(tokenizer)
    example = renderer.demonstration("Answer: ", "four")
    ids = [tokenizer.encode(t, add_special_tokens=False) for t in ("Answer: ", "four")]
    assert example.tokens == ids[0] + ids[1]
    with pytest.raises(Unrenderable, match="need a chat template"):
        renderer.prompt([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("template", [True, False])
def test_half_a_surrogate_pair_is_refused_in_words(tokenizer: Any, template: bool) -> None:
    renderer = ChatRenderer(tokenizer) if template else RawRenderer(tokenizer)
    with pytest.raises(Unrenderable, match="half a surrogate pair"):
        renderer.demonstration("a", "\ud800")


def test_a_thought_that_is_no_text_is_refused(tokenizer: Any) -> None:
    turn = {"role": "assistant", "content": "3", "reasoning_content": 5}
    with pytest.raises(Unrenderable, match="must be text"):
        ChatRenderer(tokenizer).demonstration("a", [turn])
