"""The teacher's view of an answer as datums, and the reverse KL as a loss.

Position i of a datum predicts token i + 1 of (prompt, answer); an answer of n tokens behind a
prompt of c tokens therefore occupies rows c - 1 to c + n - 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rlt
from rlt.rendering import Reduction, mean_scales

if TYPE_CHECKING:
    import numpy as np
    import torch
    from tinker import Datum

    from rlt_sdft.distill import Lesson


def datums(lessons: Sequence[Lesson], options: Mapping[str, Any]) -> list[Datum]:
    """Return one datum for each lesson, with the step's mean in its weights or advantages."""
    skip, mode = options["skip"], options["mode"]
    scales = mean_scales([lesson.trained(skip) for lesson in lessons], options["reduction"])
    if mode == "sampled":
        return [_advantages(x, skip, s) for x, s in zip(lessons, scales, strict=True)]
    if mode == "reverse":  # its weights carry p; the loss itself takes the mean
        scales = [1.0] * len(lessons)
    return [_distribution(x, skip, s) for x, s in zip(lessons, scales, strict=True)]


def probabilities(logprobs: np.ndarray) -> np.ndarray:
    """Return log-probabilities (n, K) renormalised over their K tokens, as probabilities."""
    import numpy as np  # noqa: PLC0415

    raised = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def entropy(lessons: Sequence[Lesson], skip: int) -> float:
    """Return the mean entropy of the teacher's renormalised distributions, in nats a token."""
    import numpy as np  # noqa: PLC0415

    rows = [probabilities(x.top_logprobs[skip:]) for x in lessons if x.top_logprobs.size]
    if not rows:
        return 0.0
    p = np.concatenate(rows)
    return float(-(p * np.log(np.maximum(p, 1e-30))).sum(axis=1).mean())


def reverse_kl(count: int, reduction: Reduction) -> rlt.CustomLoss:
    """Return sum_k q_k (log q_k - log p_k), q and p renormalised over the teacher's K tokens.

    The datums' weights (N, K) hold p, and 0 where nothing is to be learnt; the mean over tokens or
    sequences is taken here. Needs torch.
    """

    def loss(
        data: list[Datum], logprobs: list[torch.Tensor]
    ) -> tuple[torch.Tensor, dict[str, float]]:
        import torch  # noqa: PLC0415 - only this mode needs it

        assert len(data) == count, "the loss is a mean over the whole step"
        parts = []
        for datum, logq in zip(data, logprobs, strict=True):
            p = datum.loss_fn_inputs["weights"].to_torch()
            rows = p.sum(dim=1) > 0
            log_q = torch.log_softmax(logq[rows], dim=1)
            log_p = torch.log(p[rows].clamp_min(1e-30))
            parts.append((log_q.exp() * (log_q - log_p)).sum(dim=1))
        scales = mean_scales([len(part) for part in parts], reduction)
        total = torch.stack([part.sum() * s for part, s in zip(parts, scales, strict=True)]).sum()
        return total, {}

    return loss


def _distribution(lesson: Lesson, skip: int, scale: float) -> Datum:
    """Return targets and weights of shape (N, K): p * scale at the answer's rows, else 0."""
    import numpy as np  # noqa: PLC0415
    from tinker import Datum, ModelInput, TensorData  # noqa: PLC0415

    context, n = list(lesson.made.context.tokens), len(lesson.tokens)
    whole, k = [*context, *lesson.tokens], lesson.top_tokens.shape[1]
    tokens = np.zeros((len(whole) - 1, k), np.int64)
    weights = np.zeros((len(whole) - 1, k), np.float32)
    tokens[-n:] = lesson.top_tokens
    weights[-n:][skip:] = probabilities(lesson.top_logprobs)[skip:] * scale
    return Datum(
        model_input=ModelInput.from_ints(whole[:-1]),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(tokens),
            "weights": TensorData.from_numpy(weights),
        },
    )


def _advantages(lesson: Lesson, skip: int, scale: float) -> Datum:
    """Return the inputs of importance sampling, (N,): advantages are log p - log q, scaled."""
    import numpy as np  # noqa: PLC0415
    from tinker import Datum, ModelInput, TensorData  # noqa: PLC0415

    whole, n = [*lesson.made.context.tokens, *lesson.tokens], len(lesson.tokens)
    logprobs, advantages = (np.zeros(len(whole) - 1, np.float32) for _ in range(2))
    logprobs[-n:] = lesson.student
    advantages[-n:][skip:] = (lesson.teacher - lesson.student)[skip:] * scale
    return Datum(
        model_input=ModelInput.from_ints(whole[:-1]),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(np.asarray(whole[1:], np.int64)),
            "logprobs": TensorData.from_numpy(logprobs),
            "advantages": TensorData.from_numpy(advantages),
        },
    )
