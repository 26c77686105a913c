"""The tests' problems, with everything about them in closed form or in plain NumPy.

`hg_problem` is what the library gets. The methods are the independent side: stacked over agents,
NumPy only, derived by hand.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

import hypergossip as hg


def _quadratic_upper(x, y, batch):
    deviation = y - batch["b"][0]
    return 0.5 * x @ batch["A"][0] @ x + 0.5 * deviation @ deviation + batch["c"][0] @ x


def _quadratic_lower(x, y, batch):
    return 0.5 * y @ batch["H"][0] @ y + x @ batch["J"][0] @ y + batch["d"][0] @ y


@dataclass(frozen=True)
class Quadratic:
    """f_i = ½ xᵀA_i x + c_iᵀx + ½‖y − b_i‖²,   g_i = ½ yᵀH_i y + xᵀJ_i y + d_iᵀy."""

    n: int
    p: int
    q: int
    heterogeneous: bool
    seed: int = 0

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        n, p, q = self.n, self.p, self.q

        def spd(size):
            roots = rng.standard_normal((n, size, size)) / np.sqrt(size)
            return roots @ roots.transpose(0, 2, 1) + np.eye(size)

        arrays = {
            "A": spd(p),
            "b": rng.standard_normal((n, q)),
            "c": rng.standard_normal((n, p)),
            "H": spd(q),
            "J": rng.standard_normal((n, p, q)) / np.sqrt(q),
            "d": rng.standard_normal((n, q)),
        }
        if not self.heterogeneous:
            for name in "HJd":
                arrays[name] = np.broadcast_to(arrays[name][0], arrays[name].shape).copy()
        return arrays

    @cached_property
    def hg_problem(self) -> hg.Problem:
        a = {name: value[:, None] for name, value in self.arrays.items()}  # one "example" per agent
        return hg.Problem(
            _quadratic_upper,
            _quadratic_lower,
            upper_data={name: a[name] for name in "Abc"},
            lower_data={name: a[name] for name in "HJd"},
            x0=jnp.zeros(self.p),
            y0=jnp.zeros(self.q),
        )

    def gy(self, x, y):
        """∇_y g_i(x_i, y_i), stacked."""
        a = self.arrays
        return np.einsum("nab,nb->na", a["H"], y) + np.einsum("npq,np->nq", a["J"], x) + a["d"]

    def fx(self, x, y):
        return np.einsum("nab,nb->na", self.arrays["A"], x) + self.arrays["c"]

    def fy(self, x, y):
        return y - self.arrays["b"]

    def H(self, x, y):
        return self.arrays["H"]

    def J(self, x, y):
        return self.arrays["J"]

    def hypergradient(self, x):
        """∇Φ at one x, in closed form."""
        a = {name: value.mean(axis=0) for name, value in self.arrays.items()}
        y = -np.linalg.solve(a["H"], a["J"].T @ x + a["d"])
        return a["A"] @ x + a["c"] - a["J"] @ np.linalg.solve(a["H"], y - a["b"])

    @cached_property
    def optimum(self) -> np.ndarray:
        """argmin Φ: ∇Φ is affine in x."""
        at_zero = self.hypergradient(np.zeros(self.p))
        columns = [self.hypergradient(e) - at_zero for e in np.eye(self.p)]
        return -np.linalg.solve(np.stack(columns, axis=1), at_zero)


def _of_mean_row(loss):
    """The quadratic losses are linear in their coefficients, so the mean loss is the loss of the mean row."""

    def mean_loss(x, y, batch):
        return loss(x, y, jax.tree.map(lambda rows: jnp.mean(rows, axis=0, keepdims=True), batch))

    return mean_loss


_sampled_upper, _sampled_lower = _of_mean_row(_quadratic_upper), _of_mean_row(_quadratic_lower)


@dataclass(frozen=True)
class SampledQuadratic:
    """Many rows per agent, each a quadratic; their mean is `whole`'s: mini-batches are noise around known answers."""

    whole: Quadratic
    examples: int
    spread: float
    seed: int = 2

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Every coefficient of every row, (agents, examples, ...)."""
        rng = np.random.default_rng(self.seed)

        def around(name, mean):
            noise = rng.standard_normal((self.whole.n, self.examples, *mean.shape[1:]))
            if name in "AH":
                noise = (noise + noise.swapaxes(-1, -2)) / 2
            noise -= noise.mean(axis=1, keepdims=True)
            return mean[:, None] + self.spread * noise / np.sqrt(mean.shape[-1])

        return {name: around(name, mean) for name, mean in self.whole.arrays.items()}

    @cached_property
    def hg_problem(self) -> hg.Problem:
        return hg.Problem(
            _sampled_upper,
            _sampled_lower,
            upper_data={name: self.rows[name] for name in "Abc"},
            lower_data={name: self.rows[name] for name in "HJd"},
            x0=jnp.zeros(self.whole.p),
            y0=jnp.zeros(self.whole.q),
        )


def _cross_entropy(y, batch):
    return jnp.mean(jnp.logaddexp(0.0, -batch["label"] * (batch["feature"] @ y)))


def _logistic_lower(x, y, batch):
    return _cross_entropy(y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def _logistic_upper(x, y, batch):
    return _cross_entropy(y, batch)


@dataclass(frozen=True)
class Logistic:
    """f_i = mean ψ(b aᵀy) on validation rows,  g_i = the same on training rows + ½ yᵀdiag(eˣ)y."""

    n: int
    p: int
    examples: int
    seed: int = 1

    @property
    def q(self) -> int:
        return self.p

    @cached_property
    def data(self) -> dict[str, dict[str, np.ndarray]]:
        rng = np.random.default_rng(self.seed)
        truth = rng.standard_normal(self.p)
        scale = (1 + np.arange(self.n)[:, None, None]) / self.n  # agents differ: their features' spread grows

        def rows():
            feature = scale * rng.standard_normal((self.n, self.examples, self.p)) * 2
            label = np.sign(feature @ truth + 0.5 * rng.standard_normal((self.n, self.examples)))
            return {"feature": feature, "label": label}

        return {"upper": rows(), "lower": rows()}

    @cached_property
    def hg_problem(self) -> hg.Problem:
        zeros = jnp.zeros(self.p)
        return hg.Problem(
            _logistic_upper,
            _logistic_lower,
            upper_data=self.data["upper"],
            lower_data=self.data["lower"],
            x0=zeros,
            y0=zeros,
        )

    def _slopes(self, which, y):
        """The first and second derivatives of ψ at each row's margin, with the rows."""
        feature, label = self.data[which]["feature"], self.data[which]["label"]
        probability = 1 / (1 + np.exp(label * np.einsum("nmp,np->nm", feature, y)))
        return feature, -label * probability, probability * (1 - probability)

    def gy(self, x, y):
        feature, first, _ = self._slopes("lower", y)
        return np.einsum("nmp,nm->np", feature, first) / self.examples + np.exp(x) * y

    def fx(self, x, y):
        return np.zeros_like(x)

    def fy(self, x, y):
        feature, first, _ = self._slopes("upper", y)
        return np.einsum("nmp,nm->np", feature, first) / self.examples

    def H(self, x, y):
        feature, _, second = self._slopes("lower", y)
        data_part = np.einsum("nmp,nm,nmq->npq", feature, second, feature) / self.examples
        return data_part + np.einsum("np,pq->npq", np.exp(x), np.eye(self.p))

    def J(self, x, y):
        return np.einsum("np,pq->npq", np.exp(x) * y, np.eye(self.p))

    def hypergradient(self, x):
        """∇Φ at one x: Newton's method on the mean lower loss, dense solves."""
        everywhere = np.broadcast_to(x, (self.n, self.p))
        y = np.zeros(self.p)
        for _ in range(50):
            stacked = np.broadcast_to(y, (self.n, self.p))
            y = y - np.linalg.solve(self.H(everywhere, stacked).mean(0), self.gy(everywhere, stacked).mean(0))
        stacked = np.broadcast_to(y, (self.n, self.p))
        z = np.linalg.solve(self.H(everywhere, stacked).mean(0), self.fy(everywhere, stacked).mean(0))
        return self.fx(everywhere, stacked).mean(0) - self.J(everywhere, stacked).mean(0) @ z


def started_at(problem: hg.Problem, x0, y0) -> hg.Problem:
    """The same problem from another start."""
    return hg.Problem(
        problem.upper, problem.lower, upper_data=problem.upper_data, lower_data=problem.lower_data, x0=x0, y0=y0
    )


def of_agents(problem: hg.Problem, agents: range) -> hg.Problem:
    """The problem as the process gives it that has only these agents, each from the start of agent 0."""
    mine = slice(agents.start, agents.stop)
    upper, lower = jax.tree.map(lambda leaf: leaf[mine], (problem.upper_data, problem.lower_data))
    x0, y0 = jax.tree.map(lambda leaf: leaf[0], (problem.x0, problem.y0))
    return hg.Problem(problem.upper, problem.lower, upper_data=upper, lower_data=lower, x0=x0, y0=y0)
