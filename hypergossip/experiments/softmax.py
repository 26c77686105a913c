"""Softmax regression, the model of both experiments on real data: one score per class, linear in the features."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..network import Witness
from ..ragged import Ragged


def cross_entropy(scores: Float[Array, "rows classes"], label: Int[Array, " rows"]) -> Float[Array, " rows"]:
    """−log softmax(scores)[label], row by row."""
    return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, label[:, None], axis=1)[:, 0]


def mean_over_rows(losses: Float[Array, " rows"], batch: Ragged) -> Scalar:
    """The agent's mean of the rows' losses; of drawn rows, an unbiased estimate of it."""
    return jnp.sum(batch.weight * losses) / batch.count.astype(losses.dtype)


class HeldOutAccuracy(eqx.Module):
    """The share of rows, never seen in training, that the averaged model ȳ (features × classes) gets right."""

    feature: Any
    """Rows as an array or as `hg.SparseRows`."""
    label: Int[Array, " rows"]

    name: ClassVar[str] = "test_accuracy"

    def __call__(self, witness: Witness) -> Scalar:
        scores = self.feature @ witness.mean_y
        return jnp.mean(jnp.argmax(scores, axis=1) == self.label, dtype=scores.dtype)
