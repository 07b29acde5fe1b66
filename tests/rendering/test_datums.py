"""Weights and targets: what counts in the loss, and by how much."""

from __future__ import annotations

import numpy as np
import pytest
from tinker import TensorData

from rlt.rendering import Example, datum, datums, mean_nll


def weights(item: object) -> list[float]:
    return [round(float(w), 6) for w in item.loss_fn_inputs["weights"].to_numpy()]  # type: ignore[attr-defined]


def test_a_token_is_predicted_from_those_before_it() -> None:
    item = datum(Example.of([10, 11], [12, 13]))
    assert item.model_input.to_ints() == [10, 11, 12]
    assert item.loss_fn_inputs["target_tokens"].to_numpy().tolist() == [11, 12, 13]
    assert weights(item) == [0, 1, 1]


def test_an_empty_prompt_leaves_as_many_weights_as_targets() -> None:
    item = datum(Example.of([], [5, 6, 7]))
    assert item.model_input.to_ints() == [5, 6]
    assert weights(item) == [1, 1]


def test_a_single_token_predicts_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to predict"):
        datum(Example.of([5], []))


def test_tokens_and_weights_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 tokens but 2 weights"):
        Example([1, 2, 3], [0, 1])


def test_token_mean_counts_every_token_of_the_step_alike() -> None:
    first, second = datums([Example.of([1], [2, 3, 4]), Example.of([1], [2])], "token-mean")
    assert weights(first) == [0.25, 0.25, 0.25]
    assert weights(second) == [0.25]


def test_sequence_mean_counts_every_sequence_alike() -> None:
    first, second = datums([Example.of([1], [2, 3, 4, 5]), Example.of([1], [2])], "sequence-mean")
    assert weights(first) == [0.125] * 4
    assert weights(second) == [0.5]


def test_sum_leaves_the_weights_alone() -> None:
    (item,) = datums([Example.of([1], [2, 3]).scaled(3)], "sum")
    assert weights(item) == [3, 3]


def test_a_scaled_example_counts_as_so_many_copies() -> None:
    one, other = Example.of([1], [2, 3]), Example.of([1], [4])
    copies = datums([one, one, other], "token-mean")
    scaled = datums([one.scaled(2), other], "token-mean")
    assert weights(scaled[0]) == [round(2 * w, 6) for w in weights(copies[0])]
    assert weights(scaled[1]) == weights(copies[2])


def test_the_mean_is_over_weights_and_ignores_what_has_none() -> None:
    item = datum(Example([1, 2, 3, 4], [0, 0, 1, 3]))
    logprobs = TensorData.from_numpy(np.asarray([-np.inf, -1.0, -2.0], np.float32))
    loss, total = mean_nll([{"logprobs": logprobs}], [item])
    assert loss == pytest.approx((1 * 1.0 + 3 * 2.0) / 4)
    assert total == 4


def test_copies_count_as_sequences_too() -> None:
    one, other = Example.of([1], [2, 3]), Example.of([1], [4])
    copies = datums([one, one, one, other], "sequence-mean")
    repeated = datums([one.repeated(3), other], "sequence-mean")
    assert weights(repeated[0]) == [round(3 * w, 6) for w in weights(copies[0])]
    assert weights(repeated[1]) == weights(copies[3])
