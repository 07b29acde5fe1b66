"""Log-probabilities of chosen tokens, without ever holding the logits of a whole batch.

Logits are as wide as the vocabulary: for 2048 positions of SmolLM2 they take 400 MB, and their
gradients as much again. So positions go through the output layer a chunk at a time, and once more,
with gradients, for those whose gradient is not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlt.local.network import Network

CHUNK = 128


@torch.no_grad()
def logprobs_of(network: Network, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (T, K) of the tokens `targets` (T, K) after hidden states (T, width)."""
    pairs = zip(torch.split(hidden, CHUNK), torch.split(targets, CHUNK), strict=True)
    return torch.cat([_logprobs(network, states, tokens) for states, tokens in pairs])


def backward_through_logits(
    network: Network, hidden: torch.Tensor, targets: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor:
    """Carry `gradient` (T, K), with respect to the log-probabilities, back to the hidden states.

    Returns the gradient (T, width); gradients of an adapter on the output layer accumulate in it.
    """
    result = torch.zeros_like(hidden)
    wanted = gradient.ne(0).any(dim=1).nonzero()[:, 0]
    for chosen in torch.split(wanted, CHUNK):
        states = hidden[chosen].requires_grad_()
        logprobs = _logprobs(network, states, targets[chosen])
        torch.autograd.backward([logprobs], [gradient[chosen]])
        if states.grad is not None:
            result[chosen] = states.grad
    return result


@torch.no_grad()
def log_distributions(
    network: Network, hidden: torch.Tensor, use: Callable[[int, torch.Tensor], None]
) -> None:
    """Call `use(start, logprobs)` with the whole distributions (chunk, vocabulary), in order."""
    for index, states in enumerate(torch.split(hidden, CHUNK)):
        use(index * CHUNK, torch.log_softmax(network.logits(states), dim=-1))


def _logprobs(network: Network, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = network.logits(hidden)
    return logits.gather(1, targets) - torch.logsumexp(logits, dim=1, keepdim=True)
