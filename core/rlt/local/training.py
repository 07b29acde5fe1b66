"""One training client's model: gradients accumulate until an optimizer step uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rlt.local.adam import Adam, AdamSettings
from rlt.local.logprobs import backward_through_logits, logprobs_of
from rlt.local.losses import LOSSES
from rlt.local.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rlt.local.adapters import Adapter, AdapterBank
    from rlt.local.network import Network

# Tokens, padding included, that go through the layers at once: the activations of a layer stack are
# what memory is spent on (about 1.4 MB a token for SmolLM2 with an adapter on every layer).
TOKEN_BUDGET = 512


@dataclass(frozen=True)
class Example:
    """One datum on the device's side of the wire."""

    tokens: Sequence[int]
    targets: torch.Tensor
    """Target tokens, (N,) or (N, K), N the number of tokens."""

    inputs: Mapping[str, torch.Tensor]
    """The loss's float inputs, each of the shape of `targets`."""


@dataclass(frozen=True)
class Outcome:
    """What a forward or forward-backward pass found."""

    logprobs: Sequence[torch.Tensor]
    """For each example, the log-probabilities of its targets, of their shape."""

    metrics: Mapping[str, float]


class Trainee:
    """An adapter that learns, with its gradients and its optimizer."""

    def __init__(self, network: Network, bank: AdapterBank, adapter: Adapter) -> None:
        """Start from `adapter`, whose weights are parameters, with a fresh optimizer."""
        self.adapter = adapter
        self.adam = Adam(adapter.weights)
        self._network = network
        self._bank = bank
        self._spoiled = False

    def forward(
        self,
        examples: Sequence[Example],
        loss: str,
        config: Mapping[str, float],
        *,
        backward: bool,
        check: Callable[[], None],
    ) -> Outcome:
        """The loss of `examples`, and with `backward` its gradient, added to those held already.

        `check` is called now and then, and ends the pass by raising.
        """
        self._bank.hang(self.adapter)
        for weight in self.adapter.weights.values():
            weight.requires_grad_()
        logprobs: dict[int, torch.Tensor] = {}
        total = 0.0
        for batch in _micro_batches(examples):
            check()
            chosen = [examples[index] for index in batch]
            found, value = self._micro_batch(chosen, loss, config, backward=backward)
            logprobs.update(zip(batch, found, strict=True))
            total += value
        ordered = [logprobs[index] for index in range(len(examples))]
        return Outcome(ordered, {"loss:sum": total})

    def spoil(self) -> None:
        """A pass has failed: the next optimizer step would not be the one that was meant.

        Clients send the step before they know how the pass went.
        """
        self._spoiled = True

    def optimizer_step(self, settings: AdamSettings) -> Mapping[str, float]:
        """Use the gradients, and forget them. Raises Refusal when a pass before it has failed."""
        if self._spoiled:
            self._spoiled = False
            self.adam.forget_gradients()
            raise Refusal("the optimizer step was not taken: a forward_backward before it failed")
        return {"grad_norm:mean": self.adam.step(settings)}

    def _micro_batch(
        self, examples: Sequence[Example], loss: str, config: Mapping[str, float], *, backward: bool
    ) -> tuple[list[torch.Tensor], float]:
        tokens, valid = _padded([example.tokens for example in examples], self._network.device)
        with torch.set_grad_enabled(backward):
            hidden = self._network.hidden(tokens, valid)[valid.bool()]  # (T, width), row after row
        states = hidden.detach()
        targets = _stacked_targets(examples)
        found = logprobs_of(self._network, states, targets)
        total, gradient = _loss_and_gradient(examples, found, loss, config)
        if backward and gradient.any():
            onward = backward_through_logits(self._network, states, targets, gradient)
            torch.autograd.backward([hidden], [onward])
        return list(_split(examples, found)), total


def _micro_batches(examples: Sequence[Example]) -> Iterator[list[int]]:
    """Indices of examples of similar length, at most TOKEN_BUDGET padded tokens together."""
    batch: list[int] = []
    for index in sorted(range(len(examples)), key=lambda i: len(examples[i].tokens)):
        longest = len(examples[index].tokens)
        if batch and longest * (len(batch) + 1) > TOKEN_BUDGET:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _padded(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(len(row) for row in rows)
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    valid = torch.zeros(len(rows), length, dtype=torch.long)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.tensor(row)
        valid[index, : len(row)] = 1
    return tokens.to(device), valid.to(device)


def _stacked_targets(examples: Sequence[Example]) -> torch.Tensor:
    """All targets, (T, K) with the widest K; what is beyond an example's own K is token 0."""
    flat = [t if t.ndim == 2 else t[:, None] for t in (example.targets for example in examples)]
    width = max(targets.shape[1] for targets in flat)
    return torch.cat([torch.nn.functional.pad(t, (0, width - t.shape[1])) for t in flat])


def _split(examples: Sequence[Example], stacked: torch.Tensor) -> Iterator[torch.Tensor]:
    """Undo `_stacked_targets`: one view for each example, of the shape of its targets."""
    lengths = [len(example.tokens) for example in examples]
    for example, part in zip(examples, torch.split(stacked, lengths), strict=True):
        yield part[:, : example.targets.shape[1]] if example.targets.ndim == 2 else part[:, 0]


def _loss_and_gradient(
    examples: Sequence[Example], logprobs: torch.Tensor, loss: str, config: Mapping[str, float]
) -> tuple[float, torch.Tensor]:
    """The summed loss, and its gradient (T, K) with respect to `logprobs` (T, K)."""
    leaf = logprobs.detach().requires_grad_()
    function = LOSSES[loss].function
    with torch.enable_grad():
        parts = _split(examples, leaf)
        values = [
            function(part, example.inputs, config)
            for part, example in zip(parts, examples, strict=True)
        ]
        total = torch.stack(values).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    return float(total.detach()), gradient
