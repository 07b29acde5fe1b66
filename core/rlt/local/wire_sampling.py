"""Sample requests and responses, to and from what the engine computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tinker.proto import tinker_public_pb2 as pb

from rlt.local.draw import DrawSettings, StopRule, fresh_seed
from rlt.local.prompts import Cells, PromptQuestions
from rlt.local.refusal import Refusal
from rlt.local.sampling import Sample, SampleRequest, SampleResult
from rlt.local.wire import check_tokens, csr_rows

if TYPE_CHECKING:
    from tinker import types
    from tinker.types._pydantic_types.tensor_data import TensorData

    from rlt.local.network import Network

_MOST_SAMPLES = 1024


def decode_sample(request: types.SampleRequest, network: Network) -> SampleRequest:
    """Check a request and complete it with the model's own settings. Raises Refusal."""
    prompt = _prompt(request)
    check_tokens(prompt, network, "the prompt")
    if not 1 <= request.num_samples <= _MOST_SAMPLES:
        raise Refusal(f"num_samples must be 1 to {_MOST_SAMPLES}, got {request.num_samples}")
    settings = request.sampling_params
    seed = fresh_seed() if settings.seed is None else settings.seed
    return SampleRequest(
        prompt=tuple(prompt),
        samples=request.num_samples,
        max_tokens=_max_tokens(settings.max_tokens, len(prompt), network.max_context),
        draw=_draw_settings(settings),
        stop=_stop_rule(settings.stop, network),
        seed=seed,
        top_k_logprobs=_top_k(request.topk_sample_logprobs, network, "topk_sample_logprobs"),
        questions=_questions(request, len(prompt), network, seed),
    )


def _prompt(request: types.SampleRequest) -> list[int]:
    try:
        return request.prompt.to_ints()
    except ValueError as error:
        raise Refusal("the prompt: the embedded engine reads text only") from error


def _max_tokens(asked: int | None, prompt: int, context: int) -> int:
    """A limit beyond the context is cut to it: the answer then ends with "length".

    A prompt that fills the context still gets one token, which needs no further position.
    """
    if asked is not None and asked < 1:
        raise Refusal(f"max_tokens must be at least 1, got {asked}")
    room = max(1, context - prompt)
    return room if asked is None else min(asked, room)


def _draw_settings(settings: types.SamplingParams) -> DrawSettings:
    if not 0 <= settings.temperature < float("inf"):
        raise Refusal(f"temperature must be 0 or more, got {settings.temperature}")
    if not 0 < settings.top_p <= 1:
        raise Refusal(f"top_p must be above 0 and at most 1, got {settings.top_p}")
    if settings.top_k < -1:
        raise Refusal(f"top_k must be positive, or -1 for no limit, got {settings.top_k}")
    return DrawSettings(settings.temperature, settings.top_k, settings.top_p)


def _stop_rule(stop: Any, network: Network) -> StopRule:
    """None is the model's own ends; an empty list is none at all."""
    if stop is None:
        return StopRule(network.tokenizer, network.ends)
    listed = [stop] if isinstance(stop, str) else list(stop)
    strings = tuple(item for item in listed if isinstance(item, str))
    ids = [item for item in listed if not isinstance(item, str)]
    if "" in strings:
        raise Refusal("stop has an empty string")
    for token in ids:
        if not 0 <= token < network.vocabulary:
            raise Refusal(
                f"stop has token {token}; the vocabulary ends at {network.vocabulary - 1}"
            )
    return StopRule(network.tokenizer, frozenset(ids), strings)


def _top_k(asked: int, network: Network, what: str) -> int:
    if not 0 <= asked <= network.vocabulary:
        raise Refusal(f"{what} must be 0 to {network.vocabulary}, got {asked}")
    return asked


def _questions(
    request: types.SampleRequest, prompt: int, network: Network, seed: int
) -> PromptQuestions:
    last = request.prompt_logprobs_last_n
    if last is not None and not 1 <= last <= prompt - 1:
        raise Refusal(f"prompt_logprobs_last_n must be 1 to {prompt - 1}, got {last}")
    if request.prompt_alt_tokens_k < 0:
        raise Refusal(f"prompt_alt_tokens_k must be 0 or more, got {request.prompt_alt_tokens_k}")
    asked = request.target_prompt_logprobs
    return PromptQuestions(
        logprobs=bool(request.prompt_logprobs),
        last_n=last,
        top_k=_top_k(request.topk_prompt_logprobs, network, "topk_prompt_logprobs"),
        targets=None if asked is None else _cells(asked, prompt, network.vocabulary),
        alternatives=request.prompt_alt_tokens_k,
        temperature=request.sampling_params.temperature,
        seed=seed,
    )


def _cells(tensor: TensorData, prompt: int, vocabulary: int) -> Cells:
    what, shape = "target_prompt_logprobs", tuple(tensor.shape or ())
    if len(shape) != 2 or shape[0] != prompt - 1:
        raise Refusal(f"{what} must have the shape ({prompt - 1}, K), got {shape}")
    tokens = np.asarray(tensor.data, np.int64)
    try:
        if tensor.sparse_crow_indices is None:
            rows = np.repeat(np.arange(shape[0]), shape[1])
        else:
            columns = np.asarray(tensor.sparse_col_indices or [], np.int64)
            rows = csr_rows(np.asarray(tensor.sparse_crow_indices, np.int64), columns, shape)
    except ValueError as error:
        raise Refusal(f"{what}: {error}") from error
    if len(tokens) != len(rows):
        raise Refusal(f"{what} has {len(tokens)} values where its shape needs {len(rows)}")
    if ((tokens < -1) | (tokens >= vocabulary)).any():
        raise Refusal(f"{what} has a token outside of -1 to {vocabulary - 1}")
    return Cells(rows, tokens)


def encode_sample(result: SampleResult, request: types.SampleRequest) -> bytes:
    """A SampleResponse."""
    message = pb.SampleResponse()
    message.sequences.extend(
        _sequence(sample, request.topk_sample_logprobs) for sample in result.samples
    )
    answers = result.prompt
    if answers.logprobs is not None:
        message.prompt_logprobs = answers.logprobs.tobytes()
    if answers.top_tokens is not None and answers.top_logprobs is not None:
        message.topk_prompt_logprobs.CopyFrom(_topk(answers.top_tokens, answers.top_logprobs))
    if answers.targets is not None and request.target_prompt_logprobs is not None:
        message.target_prompt_logprobs.CopyFrom(
            _like(request.target_prompt_logprobs, answers.targets)
        )
    if answers.alternatives is not None and answers.alternative_logprobs is not None:
        message.prompt_alt_tokens.tokens.CopyFrom(_tensor(answers.alternatives, pb.DTYPE_INT32))
        message.prompt_alt_tokens.logprobs.CopyFrom(
            _tensor(answers.alternative_logprobs, pb.DTYPE_FLOAT32)
        )
    return bytes(message.SerializeToString())


def _sequence(sample: Sample, top_k: int) -> pb.SampledSequence:
    message = pb.SampledSequence(
        stop_reason=pb.STOP_REASON_STOP if sample.stopped else pb.STOP_REASON_LENGTH,
        tokens=np.asarray(sample.tokens, np.int32).tobytes(),
        logprobs=np.asarray(sample.logprobs, np.float32).tobytes(),
    )
    if top_k:
        tokens = np.asarray([ids for ids, _ in sample.top], np.int32)
        values = np.asarray([logprobs for _, logprobs in sample.top], np.float32)
        message.topk_sampled_logprobs.CopyFrom(_topk(tokens, values))
    return message


def _topk(tokens: np.ndarray, logprobs: np.ndarray) -> pb.TopkLogprobs:
    length, k = tokens.shape
    return pb.TopkLogprobs(
        token_ids=tokens.tobytes(), logprobs=logprobs.tobytes(), k=k, length=length
    )


def _tensor(array: np.ndarray, dtype: pb.DType.ValueType) -> pb.Tensor:
    return pb.Tensor(dense=array.tobytes(), dtype=dtype, shape=list(array.shape))


def _like(asked: TensorData, values: np.ndarray) -> pb.Tensor:
    """Values in the layout in which their tokens were asked for."""
    message = pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=asked.shape)
    if asked.sparse_crow_indices is None:
        message.dense = values.tobytes()
        return message
    message.sparse_csr.values = values.tobytes()
    message.sparse_csr.crow_indices = np.asarray(asked.sparse_crow_indices, np.int64).tobytes()
    message.sparse_csr.col_indices = np.asarray(asked.sparse_col_indices, np.int64).tobytes()
    return message
