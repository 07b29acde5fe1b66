"""The formats of models that people train, by small templates written for these tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlt.errors import UsageError
from rlt.rendering import ChatRenderer, Example, Thinking, Unrenderable, renderer_for

HERE = Path(__file__).parent / "templates"
SPECIAL = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def call(arguments: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "add", "arguments": arguments}}


TRACE = [
    {"role": "assistant", "content": "", "tool_calls": [call('{"a": 1, "b": 2}')]},
    {"role": "tool", "content": "3"},
    {"role": "tool", "content": "exactly"},
    {"role": "assistant", "content": "It is 3."},
]
CALLS = {
    "nemotron": "\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
    "</parameter>\n</function>\n</tool_call>\n<|im_end|>",
    "qwen3": '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>',
    "llama3": '{"name": "add", "parameters": {"a": 1, "b": 2}}<|eot_id|>',
}

Load = Callable[..., ChatRenderer]


@pytest.fixture
def load(tokenizer: Any) -> Load:
    def renderer(name: str, thinking: Thinking = "auto") -> ChatRenderer:
        own = copy.deepcopy(tokenizer)
        own.add_special_tokens({"additional_special_tokens": SPECIAL})
        own.chat_template = (HERE / f"{name}.jinja").read_text()
        return ChatRenderer(own, thinking)

    return renderer


def learnt(renderer: ChatRenderer, example: Example) -> str:
    ids = [t for t, w in zip(example.tokens, example.weights, strict=True) if w]
    return str(renderer._tokenizer.decode(ids))


@pytest.mark.parametrize("name", CALLS)
def test_a_tool_call_is_learnt_as_the_model_writes_it(load: Load, name: str) -> None:
    renderer = load(name)
    assert renderer.native_tools
    example = renderer.demonstration("1 + 2?", TRACE[:1], [TOOL])
    assert learnt(renderer, example) == CALLS[name]
    prompt = renderer.prompt("1 + 2?", [TOOL])
    assert example.tokens[: len(prompt)] == prompt


@pytest.mark.parametrize("name", CALLS)
def test_arguments_may_be_an_object_or_a_json_string(load: Load, name: str) -> None:
    renderer = load(name)
    as_object = [{**TRACE[0], "tool_calls": [call({"a": 1, "b": 2})]}]
    assert renderer.demonstration("?", as_object, [TOOL]) == renderer.demonstration(
        "?", TRACE[:1], [TOOL]
    )


@pytest.mark.parametrize("name", ["nemotron", "llama3"])
def test_a_whole_trace_is_learnt_without_its_results(load: Load, name: str) -> None:
    renderer = load(name)
    text = learnt(renderer, renderer.demonstration("1 + 2?", TRACE, [TOOL]))
    assert text.startswith(CALLS[name])
    assert text.removeprefix(CALLS[name]).startswith("It is 3.")
    assert "exactly" not in text


def test_nemotrons_results_share_a_block_and_its_thoughts_are_off(load: Load) -> None:
    renderer = load("nemotron")
    assert renderer.thinking_off
    whole = renderer._tokenizer.decode(renderer.demonstration("?", TRACE, [TOOL]).tokens)
    assert whole.startswith("<|im_start|>system\n")
    assert "3\n</tool_response>\n<tool_response>\nexactly\n</tool_response>\n<|im_end|>" in whole
    assert renderer.text(renderer.prompt("?")).endswith("<|im_start|>assistant\n<think></think>")


THOUGHTFUL = [
    {**TRACE[0], "reasoning_content": "One and two."},
    *TRACE[1:3],
    {**TRACE[3], "reasoning_content": "So three."},
]
SPOKEN = [{"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n3"}]
LEARNT = {
    "nemotron": "One and two.\n</think>\n<tool_call>\n<function=add>",
    "qwen3": "<think>\nOne and two.\n</think>\n\n<tool_call>",
}


@pytest.mark.parametrize("name", LEARNT)
def test_with_thinking_on_the_thoughts_of_every_turn_are_learnt(load: Load, name: str) -> None:
    renderer = load(name, "on")
    example = renderer.demonstration("1 + 2?", THOUGHTFUL, [TOOL])
    text = learnt(renderer, example)
    assert text.startswith(LEARNT[name])
    assert "So three.\n</think>" in text
    prompt = renderer.prompt("1 + 2?", [TOOL])
    assert example.tokens[: len(prompt)] == prompt


def test_a_thought_may_stand_in_the_content(load: Load) -> None:
    renderer = load("nemotron", "on")
    spoken = [{"role": "assistant", "content": "<think>\nEasy.\n</think>\n3"}]
    apart = [{"role": "assistant", "content": "3", "reasoning_content": "Easy."}]
    whole = renderer.demonstration("1 + 2?", spoken)
    assert whole == renderer.demonstration("1 + 2?", apart)
    assert learnt(renderer, whole).startswith("Easy.\n</think>\n3")


@pytest.mark.parametrize(
    ("name", "thinking", "trace", "said"),
    [
        ("nemotron", "on", TRACE, "needs its thought"),
        ("qwen3", "on", TRACE[:1], "needs its thought"),
        ("qwen3", "auto", THOUGHTFUL, "use --thinking on"),
        ("qwen3", "off", SPOKEN, "use --thinking on"),
        ("reasoner", "auto", [TRACE[-1]], "needs its thought"),
        ("forgetful_reasoner", "auto", SPOKEN, "leaves out the thought"),
        ("nemotron", "auto", THOUGHTFUL, "use --thinking on"),
        ("qwen3", "off", THOUGHTFUL, "use --thinking on"),
        ("llama3", "auto", THOUGHTFUL, "leaves out reasoning_content"),
    ],
)
def test_thoughts_that_do_not_fit_the_template_are_refused_with_the_way_out(
    load: Load, name: str, thinking: str, trace: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(Unrenderable, match=said):
        load(name, thinking).demonstration("1 + 2?", trace, [TOOL])


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("name", ["qwen3", "reasoner"])
def test_a_thought_goes_by_several_names_and_may_have_to_go_into_the_content(
    load: Load, name: str, key: str
) -> None:
    turn = {"role": "assistant", "content": "3", key: "Easy."}
    renderer = load(name, "on")
    text = learnt(renderer, renderer.demonstration("1 + 2?", [turn]))
    assert text.removeprefix("<think>\n") == "Easy.\n</think>\n\n3<|im_end|>"
    assert renderer.completion_text([turn]) == "<think>\nEasy.\n</think>\n\n3"


@pytest.mark.parametrize(
    ("name", "thinking"),
    [("forgetful_reasoner", "on"), ("forgetful_reasoner", "off"), ("reasoner", "off")],
)
def test_a_choice_that_a_template_does_not_have_is_refused(
    load: Load, name: str, thinking: str
) -> None:
    with pytest.raises(UsageError, match=f"--thinking {thinking}"):
        load(name, thinking)


def test_a_model_without_thoughts_may_learn_them_as_text(load: Load) -> None:
    renderer = load("llama3")
    assert learnt(renderer, renderer.demonstration("?", SPOKEN)).startswith("<think>\nEasy.")


@pytest.mark.parametrize("name", ["nemotron", "qwen3"])
def test_thinking_is_a_choice(load: Load, name: str) -> None:
    assert load(name, "off").thinking_off
    assert not load(name, "on").thinking_off
    prompts = [load(name, choice).prompt("?") for choice in ("on", "off")]
    assert prompts[0] != prompts[1]


def test_a_template_without_thoughts_cannot_switch_them_on(load: Load, tokenizer: Any) -> None:
    with pytest.raises(UsageError, match="--thinking on"):
        load("llama3", "on")
    assert load("llama3", "off").prompt("?") == load("llama3").prompt("?")
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    with pytest.raises(UsageError, match="no chat template"):
        renderer_for(bare, "on")


def test_qwen3_forgets_its_thoughts_so_its_traces_are_refused(load: Load) -> None:
    with pytest.raises(Unrenderable, match="rewrites earlier turns"):
        load("qwen3").demonstration("1 + 2?", TRACE, [TOOL])


def test_llama3_has_one_bos_and_its_own_end_of_turn(load: Load) -> None:
    renderer = load("llama3")
    begin, end = (renderer._tokenizer.convert_tokens_to_ids(SPECIAL[i]) for i in (0, 3))
    example = renderer.demonstration("Hi", " Hello. ")
    assert example.tokens.count(begin) == 1
    assert end in renderer.stop
    assert learnt(renderer, example) == "Hello.<|eot_id|>"


def test_a_turn_that_ends_in_another_way_is_refused(load: Load) -> None:
    """As gpt-oss, whose calls end in another token than its answers."""
    renderer = load("llama3")
    renderer._tokenizer.chat_template = (
        (HERE / "llama3.jinja").read_text().replace("<|eot_id|>", "<|end_header_id|>")
    )
    with pytest.raises(Unrenderable, match="in a way of its own"):
        renderer.demonstration("?", "3")


def test_what_a_template_refuses_is_told_in_its_own_words(load: Load) -> None:
    twice = [{**TRACE[0], "tool_calls": [call({}), call({})]}]
    with pytest.raises(Unrenderable, match="one tool call at a time"):
        load("llama3").demonstration("?", twice, [TOOL])
