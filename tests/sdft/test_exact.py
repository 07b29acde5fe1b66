"""What each mode learns, against the whole computation with transformers and peft."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from peft import PeftModel
from tinker import Datum, ModelInput, TensorData
from transformers import AutoModelForCausalLM

from conftest import Cli
from helpers import KEEPER, read_lines, write_lines
from rlt.local.layout import checkpoint_folder
from rlt.rendering import ChatRenderer
from rlt_sdft import targets
from rlt_sdft.options import DISTILL, REWRITE

SKIP = 2
REDUCTIONS = ["token-mean", "sequence-mean", "sum"]
ROWS = [{"prompt": f"Say {word}.", "completion": word} for word in ("one", "it is two", "three!")]


@pytest.fixture
def hasty(tiny_model: Path, tokenizer: Any, work: Path) -> Path:
    """The tiny model, but it ends its turns, now sooner, now later: answers differ in length."""
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        unembedding = model.get_output_embeddings().weight
        unembedding[tokenizer.eos_token_id] = 3 * unembedding[100]
    model.save_pretrained(work / "hasty")
    tokenizer.save_pretrained(work / "hasty")
    return work / "hasty"


@dataclass
class Views:
    """What the base model thinks of an answer to a row's prompt, or to the teacher's."""

    model: Any
    renderer: ChatRenderer

    def logprobs(self, prompt: str, answer: Sequence[int]) -> torch.Tensor:
        """Return (n, V): at each of the answer's n tokens, over the whole vocabulary."""
        logits = self.model(torch.tensor([[*self.renderer.prompt(prompt), *answer]])).logits[0]
        return torch.log_softmax(logits[-len(answer) - 1 : -1], -1)

    def student(self, row: Any, answer: Sequence[int]) -> torch.Tensor:
        return self.logprobs(row["prompt"], answer)

    def teacher(self, row: Any, answer: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.logprobs(DISTILL.format(**row), answer)

    def trainable(self, run: Path) -> Views:
        """Return the same by way of the run's adapter as it was before step 0.

        A saved one has moved in B alone: where B is zero, as it was, A has no gradient.
        """
        saved = read_lines(run / "checkpoints.jsonl")[0]["state"]
        with warnings.catch_warnings():  # what peft says to whoever loads a tied output layer
            warnings.simplefilter("ignore")
            folder = checkpoint_folder(run / "weights", saved)
            model = PeftModel.from_pretrained(self.model, folder, is_trainable=True)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.zeros_(weight)
        return Views(model, self.renderer)

    def grad_norm(self) -> float:
        found = [p.grad.flatten() for p in self.model.parameters() if p.grad is not None]
        return float(torch.cat(found).norm())


@pytest.fixture
def base(hasty: Path, tokenizer: Any) -> Views:
    model = AutoModelForCausalLM.from_pretrained(hasty, dtype=torch.float32).eval()
    return Views(model, ChatRenderer(tokenizer))


class Taught(NamedTuple):
    """A datum, and where it came from."""

    datum: dict[str, torch.Tensor]
    step: int
    row: Any
    answer: list[int]
    scale: float
    """What one of its tokens counts in the mean."""


@dataclass
class Kept:
    """What a run left behind."""

    datums: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    reduction: str

    def taught(self) -> Iterator[Taught]:
        """Yield what the modes learn that let the student answer."""
        usable = [x for x in self.samples if len(x["tokens"]) > SKIP]
        for datum, sample in zip(self.datums, usable, strict=True):
            answer, step = sample["tokens"], sample["step"]
            assert datum.pop("inputs")[1 - len(answer) :] == answer[:-1]
            tensors = {name: torch.tensor(values) for name, values in datum.items()}
            lengths = [len(x["tokens"]) - SKIP for x in usable if x["step"] == step]
            assert len(set(lengths)) > 1, "else every mean is the same"
            scale = scale_of(len(answer) - SKIP, lengths, self.reduction)
            yield Taught(tensors, step, ROWS[sample["line"] - 1], answer, scale)


def scale_of(length: int, lengths: Sequence[int], reduction: str) -> float:
    """Return what a token counts in a sequence of one length, in a step of several."""
    if reduction == "sum":
        return 1.0
    return 1 / (sum(lengths) if reduction == "token-mean" else len(lengths) * length)


@pytest.fixture
def run(train: Cli, hasty: Path, work: Path) -> Callable[..., Kept]:
    def call(
        mode: str, reduction: str, *arguments: object, out: str = "k", steps: int = 1, k: int = 384
    ) -> Kept:
        (work / "keeper.py").write_text(KEEPER)
        write_lines(work / "rows.jsonl", ROWS)
        result = train("--plugin", "sdft", "--plugin", "keeper.py", "--data", "rows.jsonl",
                       "--model", hasty, "--out", out, "--prompts-per-step", 3, "--group-size", 2,
                       "--temperature", 1, "--max-tokens", 12, "--steps", steps, "--lr", 0.01,
                       "-o", f"mode={mode}", "-o", f"reduction={reduction}", "-o", f"k={k}",
                       "-o", f"skip={SKIP}", *arguments)  # fmt: skip
        assert result.code == 0, result.err
        datums, samples, metrics = (
            read_lines(Path(f"runs/{out}/{name}.jsonl"))
            for name in ("datums", "samples", "metrics")
        )
        return Kept(datums, samples, metrics, reduction)

    return call


def own(logprobs: torch.Tensor, answer: Sequence[int]) -> torch.Tensor:
    return logprobs.gather(1, torch.tensor(answer)[:, None])[:, 0]


def divergence(log_a: torch.Tensor, log_b: torch.Tensor) -> torch.Tensor:
    """Return KL(a || b) over what comes after the first SKIP tokens, summed."""
    return (log_a.exp() * (log_a - log_b))[SKIP:].sum()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_sampled_weighs_each_token_by_how_much_likelier_the_teacher_finds_it(
    run: Callable[..., Kept], base: Views, reduction: str
) -> None:
    for datum, step, row, answer, scale in run("sampled", reduction, steps=2).taught():
        n = len(answer)
        logprobs, advantages = datum["logprobs"], datum["advantages"]
        assert not logprobs[:-n].any() and not advantages[: SKIP - n].any()
        if step == 0:  # later the student has moved; its teacher, the base model, never does
            student = own(base.student(row, answer), answer)
            assert torch.allclose(logprobs[-n:], student, atol=1e-4)
        gap = own(base.teacher(row, answer), answer) - logprobs[-n:]
        assert torch.allclose(advantages[SKIP - n :] / scale, gap[SKIP:], atol=1e-4)


@pytest.mark.parametrize("mode", ["topk", "reverse"])
def test_the_teachers_likeliest_tokens_are_renormalised(
    run: Callable[..., Kept], base: Views, mode: str
) -> None:
    for datum, _, row, answer, scale in run(mode, "sequence-mean", k=5, steps=2).taught():
        n = len(answer)
        top = torch.topk(base.teacher(row, answer).exp(), 5)
        p = top.values / top.values.sum(1, keepdim=True)
        found = datum["weights"] / (scale if mode == "topk" else 1)
        assert torch.equal(datum["target_tokens"][-n:], top.indices)
        assert torch.allclose(found[SKIP - n :], p[SKIP:], atol=1e-4)
        assert not found[: SKIP - n].any()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reverse_with_the_whole_vocabulary_is_the_exact_reverse_kl(
    run: Callable[..., Kept], base: Views, reduction: Any
) -> None:
    """In its weights, in its loss, and in the gradient on the logits of any student."""
    found, draw = run("reverse", reduction), torch.Generator().manual_seed(0)
    loss, exact = 0.0, torch.tensor(0.0)
    data, logits, logprobs = [], [], []
    for datum, _, row, answer, scale in found.taught():
        n, teacher = len(answer), base.teacher(row, answer)
        tokens, weights = datum["target_tokens"], datum["weights"]
        dense = torch.zeros(n, 384).scatter_(1, tokens[-n:], weights[-n:])
        assert torch.allclose(dense[SKIP:], teacher.exp()[SKIP:], atol=1e-4)
        assert not weights[: SKIP - n].any()
        loss += divergence(base.student(row, answer), teacher).item() * scale

        student = (2 * torch.randn(len(tokens), 384, generator=draw)).requires_grad_()
        log_q = torch.log_softmax(student, -1)
        exact = exact + divergence(log_q[-n:], teacher) * scale
        logits.append(student)
        logprobs.append(log_q.gather(1, tokens))
        data.append(Datum(model_input=ModelInput.from_ints([]),
                          loss_fn_inputs={"weights": TensorData.from_torch(weights)}))  # fmt: skip
    assert found.metrics[0]["loss"] == pytest.approx(loss, rel=1e-4)

    value, _ = targets.reverse_kl(len(data), reduction)(data, logprobs)
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)
    gradients = torch.autograd.grad(value, logits, retain_graph=True)
    for gradient, expected in zip(gradients, torch.autograd.grad(exact, logits), strict=True):
        assert torch.allclose(gradient, expected, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("mode", "reduction"),
    [("topk", "token-mean"), ("topk", "sequence-mean"), ("topk", "sum"),
     ("reverse", "sequence-mean"), ("sampled", "sequence-mean")],
)  # fmt: skip
def test_the_gradient_of_a_step_is_that_of_the_exact_loss(
    run: Callable[..., Kept], base: Views, mode: str, reduction: str
) -> None:
    """All the way through the SDK and the engine, on the adapter's own weights."""
    found = run(mode, reduction)
    views = base.trainable(Path("runs/k"))
    for _, _, row, answer, scale in found.taught():
        p, q = views.teacher(row, answer), views.student(row, answer)
        if mode == "sampled":  # where it was sampled the ratio of importance is 1
            gap = own(p, answer) - own(q, answer).detach()
            loss = -(own(q, answer) * gap)[SKIP:].sum()
        else:
            loss = divergence(p, q) if mode == "topk" else divergence(q, p)
        (loss * scale).backward()
    assert found.metrics[0]["grad_norm"] == pytest.approx(views.grad_norm(), rel=1e-3)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_demonstration_counts_as_each_of_the_rewrites_that_it_replaces(
    run: Callable[..., Kept], base: Views, reduction: str
) -> None:
    """One datum stands for several: the loss and the gradient are those of all of them."""
    found = run("rewrite", reduction, "--seed", 5)
    (line,), views = found.metrics, base.trainable(Path("runs/k"))
    assert 0 < line["n_accepted"] < line["n_rewrites"] - 1
    learnt, gaps = [], []
    for sample in found.samples:
        row, rewrite = ROWS[sample["line"] - 1], sample["tokens"]
        demonstration = base.renderer.split(row["prompt"], row["completion"])[1]
        answer = demonstration if sample["rejected"] else rewrite
        learnt.append(own(views.student(row, answer), answer))
        if not sample["rejected"]:
            teacher = own(views.logprobs(REWRITE.format(**row), answer), answer)
            gaps.append((teacher - learnt[-1]).detach())
    lengths = [len(logprobs) for logprobs in learnt]
    scales = [scale_of(n, lengths, reduction) for n in lengths]
    total = -torch.stack([x.sum() * scale for x, scale in zip(learnt, scales, strict=True)]).sum()
    total.backward()
    mean = total.item() / (sum(lengths) if reduction == "sum" else 1)
    assert line["loss"] == pytest.approx(mean, rel=1e-4)
    assert line["grad_norm"] == pytest.approx(views.grad_norm(), rel=1e-3)
    assert line["teacher_gap"] == pytest.approx(torch.cat(gaps).mean().item(), rel=1e-4)


@pytest.mark.parametrize(
    ("mode", "reduction"),
    [("rewrite", "token-mean"), ("rewrite", "sequence-mean"), ("rewrite", "sum"),
     ("topk", "token-mean"), ("sampled", "sequence-mean"), ("sampled", "sum")],
)  # fmt: skip
def test_it_does_not_matter_in_how_many_parts_a_step_is_sent(
    run: Callable[..., Kept], mode: str, reduction: str
) -> None:
    one, three = (
        run(mode, reduction, "--substeps", parts, out=f"s{parts}", k=20, steps=2).metrics
        for parts in (1, 3)
    )
    assert len(one) == 2 and all(line["n_datums"] >= 3 for line in one)
    for name in ("n_datums", "loss", "grad_norm"):
        together, apart = ([line[name] for line in lines] for lines in (one, three))
        assert apart == pytest.approx(together, rel=1e-4)
