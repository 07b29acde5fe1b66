"""The Tinker protocol's messages, to and from what the engine computes with.

The SDK checks neither lengths nor token ids, so all of that is checked here, before anything is
computed. Positions are counted from 0 in messages, as in the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tinker.proto import tinker_public_pb2 as pb

from rlt.local.losses import LOSSES
from rlt.local.refusal import Refusal
from rlt.local.training import Example, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlt.local.network import Network

_DTYPES: Mapping[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype(np.float32),
    pb.DTYPE_INT64: np.dtype(np.int64),
    pb.DTYPE_INT32: np.dtype(np.int32),
}


def check_tokens(tokens: Sequence[int], network: Network, what: str) -> None:
    """Raises Refusal unless `tokens` can go through the model."""
    if len(tokens) == 0:
        raise Refusal(f"{what} has no tokens")
    if len(tokens) > network.max_context:
        raise Refusal(
            f"{what} has {len(tokens)} tokens; the model's context is {network.max_context}"
        )
    _check_ids(np.asarray(tokens), network.vocabulary, what)


def decode_examples(
    message: pb.ForwardBackwardRequest, network: Network
) -> tuple[list[Example], dict[str, float]]:
    """The examples and the complete loss configuration of a request. Raises Refusal."""
    loss = LOSSES.get(message.loss_fn)
    if loss is None:
        raise Refusal(
            f"loss {message.loss_fn!r} is not one of the embedded engine's: {', '.join(LOSSES)}"
        )
    config = _decode_config(message, loss.defaults)
    if not message.data:
        raise Refusal("the request has no data")
    examples = [
        _decode_datum(datum, f"datum {index}", message.loss_fn, network)
        for index, datum in enumerate(message.data)
    ]
    return examples, config


def _decode_config(
    message: pb.ForwardBackwardRequest, defaults: Mapping[str, float]
) -> dict[str, float]:
    given: dict[str, float] = dict(message.loss_fn_config)
    for key, value in message.loss_fn_config_v2.items():
        if value.WhichOneof("value") != "number":
            raise Refusal(f"loss_fn_config {key!r} must be a number, got {value.text!r}")
        given[key] = value.number
    for key, number in given.items():
        if key not in defaults:
            known = ", ".join(defaults) or "nothing"
            raise Refusal(f"loss {message.loss_fn!r} does not take {key!r} (it takes {known})")
        if not np.isfinite(number):
            raise Refusal(f"loss_fn_config {key!r} is {number}")
    return {**defaults, **given}


def _decode_datum(datum: pb.Datum, what: str, loss: str, network: Network) -> Example:
    tokens = _decode_input(datum.model_input, what)
    check_tokens(tokens.tolist(), network, what)
    expected = ("target_tokens", *LOSSES[loss].inputs)
    _check_names(datum.loss_fn_inputs, expected, what, loss)
    targets = _decode_tensor(datum.loss_fn_inputs["target_tokens"], f"{what}: target_tokens")
    if targets.ndim not in {1, 2} or targets.shape[0] != len(tokens) or 0 in targets.shape:
        raise Refusal(
            f"{what}: target_tokens must have the shape ({len(tokens)},) or ({len(tokens)}, K) of "
            f"the input's {len(tokens)} tokens, got {targets.shape}"
        )
    if targets.dtype.kind != "i":
        raise Refusal(f"{what}: target_tokens must be integers")
    _check_ids(targets, network.vocabulary, f"{what}: target_tokens")
    inputs = {
        name: _decode_floats(datum.loss_fn_inputs[name], targets.shape, f"{what}: {name}").to(
            network.device
        )
        for name in LOSSES[loss].inputs
    }
    return Example(
        tokens.tolist(), torch.from_numpy(targets.astype(np.int64)).to(network.device), inputs
    )


def _check_names(given: Mapping[str, Any], expected: Sequence[str], what: str, loss: str) -> None:
    for name in expected:
        if name not in given:
            raise Refusal(
                f"{what}: loss {loss!r} needs {name!r} (has {', '.join(given) or 'none'})"
            )
    if unknown := sorted(set(given) - set(expected)):
        raise Refusal(f"{what}: loss {loss!r} takes {', '.join(expected)}, not {unknown[0]!r}")


def _decode_floats(message: pb.Tensor, shape: tuple[int, ...], what: str) -> torch.Tensor:
    array = _decode_tensor(message, what)
    if array.shape != shape:
        raise Refusal(f"{what} must have the shape of target_tokens, {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise Refusal(f"{what} has values that are not finite")
    return torch.from_numpy(array.astype(np.float32))


def _decode_input(chunks: Sequence[pb.Chunk], what: str) -> np.ndarray:
    parts = []
    for chunk in chunks:
        if chunk.WhichOneof("chunk") != "encoded_text":
            raise Refusal(f"{what}: the embedded engine reads text only, not images or audio")
        if len(chunk.encoded_text.tokens) % 4:
            raise Refusal(f"{what}: its tokens are not 32-bit integers")
        parts.append(np.frombuffer(chunk.encoded_text.tokens, np.int32))
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _decode_tensor(message: pb.Tensor, what: str) -> np.ndarray:
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise Refusal(f"{what} has an unknown element type")
    shape = tuple(message.shape)
    try:
        if message.WhichOneof("encoding") == "sparse_csr":
            return dense(
                np.frombuffer(message.sparse_csr.values, dtype),
                np.frombuffer(message.sparse_csr.crow_indices, np.int64),
                np.frombuffer(message.sparse_csr.col_indices, np.int64),
                shape,
            )
        flat = np.frombuffer(message.dense, dtype)
        return flat.reshape(shape or flat.shape)
    except (ValueError, IndexError) as error:
        raise Refusal(f"{what} is malformed: {error}") from error


def dense(
    values: np.ndarray, crow: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """A (rows, columns) array of a sparse CSR one, zero where nothing is listed.

    Raises ValueError or IndexError when the parts do not fit together.
    """
    rows = csr_rows(crow, columns, shape)
    if len(values) != len(columns):
        raise ValueError(f"{len(values)} values for {len(columns)} column indices")
    result = np.zeros(shape, values.dtype)
    result[rows, columns] = values
    return result


def csr_rows(crow: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The row of every listed value of a sparse CSR array. Raises ValueError."""
    if len(shape) != 2 or len(crow) != shape[0] + 1 or crow[0] != 0 or crow[-1] != len(columns):
        raise ValueError(f"CSR row pointers do not fit the shape {shape}")
    counts = np.diff(crow)
    if (counts < 0).any() or (columns < 0).any() or (columns >= shape[1]).any():
        raise ValueError(f"CSR indices do not fit the shape {shape}")
    return np.repeat(np.arange(shape[0]), counts)


def _check_ids(tokens: np.ndarray, vocabulary: int, what: str) -> None:
    wrong = (tokens < 0) | (tokens >= vocabulary)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        shown = place[0] if len(place) == 1 else place
        raise Refusal(
            f"{what} has token {int(tokens[place])} at position {shown}; the vocabulary ends at "
            f"{vocabulary - 1}"
        )


def encode_outcome(outcome: Outcome) -> bytes:
    """A ForwardBackwardOutput. A record holds arrays of one trailing shape, so of one K."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    message.metrics.update(outcome.metrics)
    arrays = [logprobs.cpu().numpy() for logprobs in outcome.logprobs]
    for group in _groups(arrays):
        record = message.loss_fn_outputs.add(num_datums=len(group))
        record.fields["logprobs"].CopyFrom(_batched(group))
    return bytes(message.SerializeToString())


def _groups(arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    groups: list[list[np.ndarray]] = []
    for array in arrays:
        if not groups or groups[-1][0].shape[1:] != array.shape[1:]:
            groups.append([])
        groups[-1].append(array)
    return groups


def _batched(arrays: Sequence[np.ndarray]) -> pb.BatchedTensor:
    parts = [np.ascontiguousarray(array, np.float32) for array in arrays]
    offsets = np.cumsum([0, *(part.nbytes for part in parts)]).astype(np.int64)
    return pb.BatchedTensor(
        data=b"".join(part.tobytes() for part in parts),
        offsets=offsets.tobytes(),
        dtype=pb.DTYPE_FLOAT32,
        trailing_shape=list(parts[0].shape[1:]),
    )
