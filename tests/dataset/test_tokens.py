"""With a model, rows are counted as that model's template renders them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlt.dataset import DatasetType
from rlt.dataset.check import Checker
from rlt.dataset.lines import batches
from rlt.dataset.tokens import Model, TokenCount
from rlt.errors import UsageError

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory without weights: a tokenizer of bytes, and a context of 64 tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("jinja2")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(
        tokenizers.models.BPE({char: i for i, char in enumerate(alphabet)}, [])
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    path = tmp_path_factory.mktemp("model")
    tokenizer.save_pretrained(str(path))
    (path / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    return path


def rules(
    folder: Path, kind: DatasetType, *rows: object
) -> tuple[list[tuple[str, int, str]], dict]:
    count = TokenCount(Model(str(folder)))
    checker = Checker("rows", kind, more_rules=(count,))
    content = "\n".join(map(json.dumps, rows)).encode()
    found = [finding for batch in batches([content]) for finding in checker.feed(batch)]
    return [(f.rule, f.line, f.pointer) for f in found], count.as_json()


def test_a_row_beyond_the_context_is_too_long(folder: Path, sdft: DatasetType) -> None:
    good = {"prompt": "a", "completion": "b"}
    found, tokens = rules(folder, sdft, good, {"prompt": "a", "completion": "b" * 50})
    assert found == [("too-long", 2, "/completion")]
    assert tokens["limit"] == 64
    assert tokens["longest"] == 1 + 4 + 1 + 1 + 1 + 1 + 1 + 10 + 50 + 1  # tags, role, text, end


def test_totals_and_lengths_are_added_up(folder: Path, sdft: DatasetType) -> None:
    row = {"prompt": "a", "completion": "bcd"}
    found, tokens = rules(folder, sdft, row, {**row, "prompt": "x"})
    assert found == []
    assert tokens["trained"] == 2 * (3 + 1)  # the end of the turn is learnt too
    assert tokens["histogram"] == {"32": 2}
    assert tokens["total"] == 2 * tokens["longest"]


def test_a_template_that_refuses_a_row_leaves_nothing_to_train(
    folder: Path, sdft: DatasetType, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(refusing + TEMPLATE)
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    found, _ = rules(tmp_path, sdft, {"prompt": prompt, "completion": "b"})
    assert found == [("nothing-to-train", 1, "/completion")]


def test_a_row_with_another_error_is_not_rendered(folder: Path, sdft: DatasetType) -> None:
    found, tokens = rules(folder, sdft, {"prompt": 7, "completion": "b"})
    assert found == [("wrong-type", 1, "/prompt")]
    assert tokens["total"] == 0


def test_a_model_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UsageError, match=f"cannot render rows for {tmp_path}"):
        Model(str(tmp_path))
