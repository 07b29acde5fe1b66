"""Each mode's datums, by hand and against the whole computation with transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from conftest import Cli
from helpers import KEEPER, read_lines, without_times
from rlt.rendering import ChatRenderer, Example
from rlt_sdft import targets
from rlt_sdft.distill import Lesson
from rlt_sdft.tasks import fill


def lesson(context: list[int], tokens: list[int], **arrays: Any) -> Lesson:
    made: Any = SimpleNamespace(context=Example.of(context, []))
    n = len(tokens)
    values = {
        "student": np.zeros(n), "teacher": np.zeros(n),
        "top_tokens": np.zeros((n, 0), int), "top_logprobs": np.zeros((n, 0)), **arrays,
    }  # fmt: skip
    return Lesson(made, tokens, truncated=False, **values)


def inputs(datum: Any) -> dict[str, Any]:
    return {name: tensor.to_numpy().tolist() for name, tensor in datum.loss_fn_inputs.items()}


def options(**chosen: Any) -> dict[str, Any]:
    return {"mode": "topk", "skip": 0, "reduction": "token-mean", **chosen}


def test_topk_by_hand() -> None:
    """Prompt 1 2, answer 3 4: rows 1 and 2 predict the answer; p is renormalised over K."""
    made = lesson(
        [1, 2], [3, 4],
        top_tokens=np.asarray([[3, 5], [4, 6]]),
        top_logprobs=np.log(np.asarray([[0.6, 0.2], [0.1, 0.1]])),
    )  # fmt: skip
    (datum,) = targets.datums([made], options())
    assert datum.model_input.to_ints() == [1, 2, 3]
    found = inputs(datum)
    assert found["target_tokens"] == [[0, 0], [3, 5], [4, 6]]
    assert np.allclose(found["weights"], [[0, 0], [0.375, 0.125], [0.25, 0.25]])


def test_the_first_tokens_are_skipped_and_the_mean_is_over_the_rest() -> None:
    top = np.log(np.full((4, 2), 0.5))
    made = lesson([1], [2, 3, 4, 5], top_tokens=np.ones((4, 2), int), top_logprobs=top)
    (datum,) = targets.datums([made], options(skip=3))
    assert np.allclose(inputs(datum)["weights"], [[0, 0]] * 3 + [[0.5, 0.5]])


def test_sampled_by_hand() -> None:
    made = lesson([1, 2], [3, 4], student=np.asarray([-1.0, -2.0]), teacher=np.asarray([-0.5, -3]))
    (datum,) = targets.datums([made], options(mode="sampled", skip=1))
    assert inputs(datum) == {
        "target_tokens": [2, 3, 4], "logprobs": [0, -1, -2], "advantages": [0, 0, -1],
    }  # fmt: skip


def test_reverse_by_hand() -> None:
    """q = (1/2, 1/2) against p = (3/4, 1/4): KL = ln 2 - (ln 3) / 2."""
    top = np.log(np.asarray([[0.75, 0.25]]))
    made = lesson([1], [2], top_tokens=np.asarray([[2, 3]]), top_logprobs=top)
    (datum,) = targets.datums([made], options(mode="reverse"))
    logprobs = torch.log(torch.tensor([[0.1, 0.1]])).requires_grad_()
    loss, _ = targets.reverse_kl(1, "token-mean")([datum], [logprobs])
    assert loss.item() == pytest.approx(np.log(2) - np.log(3) / 2, rel=1e-5)


@pytest.mark.parametrize("mode", ["topk", "sampled"])
@pytest.mark.parametrize("reduction", ["token-mean", "sequence-mean"])
def test_the_means_of_a_step_sum_to_one(mode: str, reduction: str) -> None:
    many = []
    for n in (2, 5):
        top = np.log(np.full((n, 2), 0.5))
        arrays = {"top_tokens": np.ones((n, 2), int), "top_logprobs": top, "teacher": np.ones(n)}
        many.append(lesson([1], list(range(n)), **arrays))
    name = "weights" if mode == "topk" else "advantages"
    data = targets.datums(many, options(mode=mode, reduction=reduction))
    totals = [np.sum(inputs(datum)[name]) for datum in data]
    assert sum(totals) == pytest.approx(1)
    assert totals[0] == pytest.approx(0.5 if reduction == "sequence-mean" else 2 / 7)


def test_braces_in_the_data_stay_what_they_are() -> None:
    filled = fill("{prompt} / {completion} / {other}", prompt="{completion}", completion="{}")
    assert filled == "{completion} / {} / {other}"


@pytest.fixture
def kept(train: Cli, rows: Path) -> Callable[..., list[dict[str, Any]]]:
    def run(*arguments: object) -> list[dict[str, Any]]:
        Path("keeper.py").write_text(KEEPER)
        result = train("--plugin", "sdft", "--plugin", "keeper.py", "--data", rows, "--out", "k",
                       "--temperature", 1, *arguments)  # fmt: skip
        assert result.code == 0, result.err
        return read_lines(Path("runs/k/datums.jsonl"))

    return run


def test_topk_with_the_whole_vocabulary_is_the_exact_forward_kl(
    kept: Callable[..., list[dict[str, Any]]], tiny_model: Path, tokenizer: Any, rows: Path
) -> None:
    """The gradient on the student's logits is q - p, p the teacher's full distribution."""
    (datum,) = kept("--steps", 1, "-o", "mode=topk", "-o", f"k={len(tokenizer)}", "-o", "skip=0")
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    (sample,) = read_lines(Path("runs/k/samples.jsonl"))
    row = json.loads(rows.read_text().splitlines()[sample["line"] - 1])
    renderer = ChatRenderer(tokenizer)
    told = (
        f"{row['prompt']}\n\nThis is an example for a response to the question:\n"
        f"{row['completion']}\n\nNow answer with a response of your own, including the thinking "
        "process."
    )
    question, n = renderer.prompt(told), len(sample["tokens"])
    with torch.no_grad():
        logits = model(torch.tensor([question + sample["tokens"]])).logits[0, -n - 1 : -1]
    p = torch.softmax(logits, -1)
    tokens, weights = (torch.tensor(datum[x]) for x in ("target_tokens", "weights"))
    dense = torch.zeros(n, p.shape[1]).scatter_add_(1, tokens[-n:], weights[-n:])
    assert torch.allclose(dense * n, p, atol=1e-4)

    student = torch.zeros(n, p.shape[1], requires_grad=True)  # any student: the gradient is q - p
    q = torch.log_softmax(student, -1)
    (-(q.gather(1, tokens[-n:]) * weights[-n:]).sum()).backward()
    exact = torch.zeros_like(student, requires_grad=True)
    log_q = torch.log_softmax(exact, -1)
    ((p * (p.log() - log_q)).sum() / n).backward()
    assert student.grad is not None
    assert exact.grad is not None
    assert torch.allclose(student.grad, exact.grad, atol=1e-4)


@pytest.mark.parametrize("mode", ["topk", "reverse", "sampled"])
def test_the_students_own_tokens_are_what_the_teacher_reads(
    kept: Callable[..., list[dict[str, Any]]], mode: str
) -> None:
    data = kept("--steps", 2, "--prompts-per-step", 2, "-o", f"mode={mode}", "-o", "k=4")
    samples = read_lines(Path("runs/k/samples.jsonl"))
    for datum, sample in zip(data, samples, strict=True):
        n = len(sample["tokens"])
        assert datum["inputs"][-n + 1 :] == sample["tokens"][:-1]


@pytest.mark.parametrize("mode", ["topk", "reverse"])
def test_the_divergence_falls_when_the_same_rows_come_again(
    train: Cli, work: Path, mode: str
) -> None:
    (work / "one.jsonl").write_text('{"prompt": "Say 1.", "completion": "It is 1."}\n')
    train("--plugin", "sdft", "--data", "one.jsonl", "--steps", 12, "--lr", "5e-3", "--out", "r",
          "--temperature", 1, "--group-size", 8, "-o", f"mode={mode}", "-o", "k=20")  # fmt: skip
    losses = [line["loss"] for line in read_lines(Path("runs/r/metrics.jsonl"))]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert all(loss >= 0 for loss in losses)


@pytest.mark.parametrize("teacher", ["base", "current", "sync"])
def test_any_teacher_is_the_same_after_a_resume(train: Cli, rows: Path, teacher: str) -> None:
    arguments = ("--plugin", "sdft", "--data", rows, "--save-every", 1, "--keep", 0,
                 "--temperature", 1, "-o", "mode=topk", "-o", "k=4", "-o", f"teacher={teacher}",
                 "-o", "sync_every=2")  # fmt: skip
    assert train(*arguments, "--steps", 4, "--out", "whole").code == 0
    for stop in (1, 3):
        assert train(*arguments, "--steps", stop, "--out", f"at{stop}").code == 0
        assert train("--out", f"at{stop}", "--resume", "auto", "--steps", 4).code == 0
        lines = [without_times(read_lines(Path(f"runs/{run}/metrics.jsonl")))
                 for run in ("whole", f"at{stop}")]  # fmt: skip
        assert lines[0] == lines[1]


def test_prompts_may_come_from_files(kept: Callable[..., list[dict[str, Any]]]) -> None:
    Path("teacher.txt").write_text("Well said: {completion} {braces}")
    kept("--steps", 1, "-o", "teacher_prompt=@teacher.txt", "-o", "system=Be brief.")
    assert read_lines(Path("runs/k/samples.jsonl"))


def test_a_prompt_file_that_is_not_there_is_said_before_anything_starts(
    train: Cli, rows: Path
) -> None:
    result = train("--plugin", "sdft", "--data", rows, "-o", "teacher_prompt=@nowhere.txt")
    assert result.code == 2
    assert "teacher_prompt=@nowhere.txt" in result.err
    assert not Path("runs").exists()


def test_a_resumed_run_keeps_the_prompt_it_began_with(train: Cli, rows: Path) -> None:
    prompt = Path("teacher.txt")
    each = ("--plugin", "sdft", "--data", rows, "-o", "teacher_prompt=@teacher.txt", "--seed", 3)
    prompt.write_text("Well said: {completion}")
    assert train(*each, "--steps", 4, "--out", "whole").code == 0
    for change in (lambda: prompt.write_text("Badly said: {completion}"), prompt.unlink):
        prompt.write_text("Well said: {completion}")
        name = f"parts{prompt.stat().st_mtime_ns}"
        assert train(*each, "--steps", 2, "--out", name).code == 0
        change()
        result = train("--out", name, "--resume", "auto", "--steps", 4)
        assert result.code == 0, result.err
        assert ("the file has changed" in result.err) == prompt.exists()
        samples = [read_lines(Path(f"runs/{run}/samples.jsonl")) for run in ("whole", name)]
        assert samples[0] == samples[1]


@pytest.mark.parametrize(("text", "code"), [(" \n", 2), ("Say something.", 0)])
def test_a_teachers_prompt_that_shows_nothing_is_said(
    train: Cli, rows: Path, text: str, code: int
) -> None:
    Path("teacher.txt").write_text(text)
    result = train("--plugin", "sdft", "--data", rows, "--steps", 1, "--out", "n",
                   "-o", "teacher_prompt=@teacher.txt")  # fmt: skip
    assert result.code == code
    assert ("the file is empty" if code else "no {completion}") in result.err
