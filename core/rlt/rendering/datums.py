"""Weighted token sequences to the service's datums, and its answers to a mean loss.

The service minimises a plain sum over tokens, sum_t -weight_t * log p(token_t). Whatever mean is
wanted is therefore written into the weights, over all examples of a step: one batch or several then
give the same gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tinker import Datum

Reduction = Literal["token-mean", "sequence-mean", "sum"]


@dataclass(frozen=True, slots=True)
class Example:
    """A whole token sequence, with what each of its tokens counts in the loss."""

    tokens: Sequence[int]
    """Token ids, shape (N,), the prompt included."""

    weights: Sequence[float]
    """Shape (N,); 0 for what is given (the prompt), 1 for what is to be learnt."""

    copies: int = 1
    """As how many sequences it counts."""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.weights):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.weights)} weights")

    @classmethod
    def of(cls, prompt: Sequence[int], completion: Sequence[int]) -> Example:
        """Join a prompt (weight 0) and the completion to learn (weight 1)."""
        return cls([*prompt, *completion], [0.0] * len(prompt) + [1.0] * len(completion))

    def then(self, tokens: Sequence[int], weight: float) -> Example:
        """Return this sequence continued by tokens of one weight."""
        return replace(
            self,
            tokens=[*self.tokens, *tokens],
            weights=[*self.weights, *[weight] * len(tokens)],
        )

    def scaled(self, factor: float) -> Example:
        """Return this sequence with every weight times `factor`."""
        return replace(self, weights=[weight * factor for weight in self.weights])

    def repeated(self, times: int) -> Example:
        """Return this sequence as one that counts as `times` copies of it."""
        return replace(self.scaled(times), copies=self.copies * times)

    @property
    def total(self) -> float:
        """The sum of the weights that can be trained on: the first token is predicted by none."""
        return float(sum(self.weights[1:]))


def datum(example: Example) -> Datum:
    """Shift an example by one: token t is predicted from the tokens before it.

    :return: a datum with N-1 input tokens, `target_tokens` and `weights` of shape (N-1,).
    :raises ValueError: when fewer than two tokens leave nothing to predict.
    """
    import numpy as np  # noqa: PLC0415
    from tinker import Datum, ModelInput, TensorData  # noqa: PLC0415

    if len(example.tokens) < 2:
        raise ValueError(f"{len(example.tokens)} tokens leave nothing to predict")
    return Datum(
        model_input=ModelInput.from_ints(list(example.tokens[:-1])),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(np.asarray(example.tokens[1:], np.int64)),
            "weights": TensorData.from_numpy(np.asarray(example.weights[1:], np.float32)),
        },
    )


def datums(examples: Sequence[Example], reduction: Reduction = "token-mean") -> list[Datum]:
    """Turn a step's examples into datums, with the mean written into the weights.

    - `token-mean`: every weighted token of the step counts the same (sum of weights 1);
    - `sequence-mean`: every sequence counts the same, its tokens share it (sum of weights 1);
    - `sum`: weights as given; a long step takes a larger gradient.
    """
    totals = [example.total for example in examples]
    scales = mean_scales(totals, reduction, [example.copies for example in examples])
    return [datum(example.scaled(scale)) for example, scale in zip(examples, scales, strict=True)]


def mean_scales(
    totals: Sequence[float], reduction: Reduction, copies: Sequence[int] | None = None
) -> list[float]:
    """Return what to multiply each sequence's weights with, so that their sum is the mean.

    :param totals: the sum of each sequence's weights, its number of trained tokens in most cases.
    :param copies: as how many sequences each counts; one when left out.
    """
    if reduction == "sum":
        return [1.0] * len(totals)
    if reduction == "token-mean":
        return [1.0 / sum(totals) if any(totals) else 0.0] * len(totals)
    each = copies or [1] * len(totals)
    counts = [count if total else 0 for count, total in zip(each, totals, strict=True)]
    return [
        count / (sum(counts) * total) if total else 0.0
        for count, total in zip(counts, totals, strict=True)
    ]


def mean_nll(outputs: Sequence[Any], batch: Sequence[Datum]) -> tuple[float, float]:
    """Return (weighted mean negative log-likelihood in nats a token, sum of the weights).

    sum(weight * -logprob) / sum(weight), in float64, over all datums. It is computed from the
    log-probabilities because services name their loss metrics differently, or send none.

    :param outputs: `ForwardBackwardOutput.loss_fn_outputs`: `logprobs` of shape (N,) or (N, K).
    """
    import numpy as np  # noqa: PLC0415

    total = weight_sum = 0.0
    for output, item in zip(outputs, batch, strict=True):
        weights = item.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
        logprobs = output["logprobs"].to_numpy().astype(np.float64)
        counted = weights != 0  # a token without weight may have no finite log-probability
        total -= float((weights[counted] * logprobs[counted]).sum())
        weight_sum += float(weights.sum())
    return (total / weight_sum if weight_sum else float("nan")), weight_sum
