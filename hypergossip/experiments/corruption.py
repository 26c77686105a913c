"""Images with wrong labels over agents: the data and the losses of hyper-cleaning, in two forms of λ.

Agent i, with means over its own images (a, b), a weight σ(λ_e) for each training row e above and
softmax regression τ below:

    f_i(λ, τ) = mean_validation ℓ(aᵀτ, b)
    g_i(λ, τ) = mean_training   σ(λ_e) ℓ(aᵀτ, b) + C ‖τ‖²,         ℓ the cross-entropy
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from ..problem import Problem
from ..ragged import Ragged, stack_ragged
from .softmax import HeldOutAccuracy, cross_entropy, mean_over_rows

if TYPE_CHECKING:
    from ..data import Dataset
    from ..trace import Trace


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """Which images, how many, how many of their labels are redrawn, and how they are dealt out."""

    folder: Path | None = None
    """Where the data are; searched for, or downloaded, if not given."""
    dataset: str = "mnist"
    """`hypergossip.data.load`'s name of the data set."""
    agents: int = 20
    """n."""
    training: int = 50_000
    """Training images of all agents together."""
    validation: int = 5_000
    """Validation images of all agents together; their labels are right."""
    share: float = 0.5
    """Of the training labels: each of these is redrawn from all classes, so that some stay right by chance."""
    penalty: float = 0.001
    """C."""
    seed: int = 0
    """Of the choice of rows, of the corruption and of the split."""

    @cached_property
    def data(self) -> Dataset:
        from ..data import load

        return load(self.dataset, self.folder)

    @cached_property
    def _drawn(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(training rows, their labels after the corruption, validation rows): drawn once and kept."""
        rng, labels = np.random.default_rng(self.seed), self.data.train.labels
        order = rng.permutation(len(labels))
        if self.training + self.validation > len(labels):
            raise ValueError(
                f"training + validation = {self.training + self.validation}; {self.dataset} has {len(labels)} rows."
            )
        training, validation = np.split(order[: self.training + self.validation], [self.training])
        redrawn = rng.random(self.training) < self.share
        noise = rng.integers(0, len(self.data.classes), self.training)
        return training, np.where(redrawn, noise, labels[training]), validation

    @cached_property
    def shares(self) -> list[np.ndarray]:
        """Each agent's training rows, by their number among all training rows."""
        from ..data import split

        return split(self._drawn[1], self.agents, "iid", seed=self.seed)

    @cached_property
    def mislabelled(self) -> list[np.ndarray]:
        """For each agent's training rows, whether the label is wrong."""
        training, label, _ = self._drawn
        wrong = label != self.data.train.labels[training]
        return [wrong[rows] for rows in self.shares]

    def shared(self) -> Problem:
        """Every agent has a copy of all λ ∈ R^training and mixes it, to the paper's letter."""
        return self._problem(jnp.zeros(self.training), self.shares, own=False)

    def own(self) -> Problem:
        """Agent i has λ for its own rows, which nobody else's loss knows of, and sends none of it."""
        places = [np.arange(len(rows)) for rows in self.shares]
        return self._problem(jnp.zeros((self.agents, max(map(len, places)))), places, own=True)

    def found(self, trace: Trace) -> dict[str, float]:
        """How well the weights of a run on `own` tell wrong labels from right ones.

        AUROC of −λ, and precision and recall of "wrong if σ(λ) < ½"; beside them the AUROC of ranking
        by each row's loss under the averaged model, which needs no weights at all.
        """
        from sklearn.metrics import precision_score, recall_score, roc_auc_score

        wrong = np.concatenate(self.mislabelled)
        pairs = zip(np.asarray(trace.x), self.shares, strict=True)
        weight = np.concatenate([own[: len(share)] for own, share in pairs])
        training, label, _ = self._drawn
        rows, model = np.concatenate(self.shares), np.asarray(trace.mean_y)
        scores = self._images(training[rows]).astype(model.dtype) @ model
        losses = cross_entropy(jnp.asarray(scores), jnp.asarray(label[rows]))
        return {
            "AUROC": float(roc_auc_score(wrong, -weight)),
            "precision": float(precision_score(wrong, weight < 0, zero_division=0.0)),
            "recall": float(recall_score(wrong, weight < 0)),
            "AUROC by the rows' losses": float(roc_auc_score(wrong, np.asarray(losses))),
        }

    def _problem(self, x0: Array, weights: list[np.ndarray], own: bool) -> Problem:
        """`weights`: for each agent's training rows, where in x their weights are."""
        from ..data import split

        training, label, validation = self._drawn
        truth = self.data.train.labels
        held = [validation[rows] for rows in split(truth[validation], self.agents, "iid", seed=self.seed)]
        y0 = jnp.zeros((self.data.train.features.shape[1], len(self.data.classes)))
        return Problem(
            upper,
            Lower(self.penalty),
            upper_data=stack_ragged([{"image": self._images(rows), "label": truth[rows]} for rows in held]),
            lower_data=stack_ragged(
                [
                    {"image": self._images(training[rows]), "label": label[rows], "weight": places}
                    for rows, places in zip(self.shares, weights, strict=True)
                ]
            ),
            x0=x0,
            y0=jnp.broadcast_to(y0, (self.agents, *y0.shape)) if own else y0,
            own=own,
        )

    def _images(self, rows: np.ndarray) -> np.ndarray:
        return self._grey(self.data.train.features[rows])

    def _grey(self, images: np.ndarray) -> np.ndarray:
        """Values from 0 to 1."""
        dtype = np.dtype(jnp.result_type(float))
        return images.astype(dtype) / dtype.type(self.data.train.features.max())

    @cached_property
    def test_accuracy(self) -> HeldOutAccuracy:
        test = self.data.test
        return HeldOutAccuracy(jnp.asarray(self._grey(test.features)), jnp.asarray(test.labels))


def upper(x: Array, y: Float[Array, "d c"], batch: Ragged) -> Scalar:
    """f_i."""
    return mean_over_rows(cross_entropy(batch.data["image"] @ y, batch.data["label"]), batch)


@dataclass(frozen=True)
class Lower:
    """g_i; each row says where in x its weight is."""

    penalty: float

    def __call__(self, x: Float[Array, " weights"], y: Float[Array, "d c"], batch: Ragged) -> Scalar:
        losses = cross_entropy(batch.data["image"] @ y, batch.data["label"])
        weight = jax.nn.sigmoid(x[batch.data["weight"]])
        return mean_over_rows(weight * losses, batch) + self.penalty * jnp.sum(y**2)
