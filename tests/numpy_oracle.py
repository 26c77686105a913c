"""The paper's algorithms once more, for all agents at once: X ∈ Rⁿˣᵖ, W @ X, loops, NumPy.

Written from the rules alone, as a second opinion on the library's per-agent programs. A problem is
anything with stacked gy, fx, fy, H and J, such as `problems.Quadratic`.
"""

from typing import NamedTuple

import numpy as np


class Iterate(NamedTuple):
    """Where all agents are between two outer iterations."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    """What the oracle starts from next: AID's v and HIGP's z (n × q), JHIP's Z (n × q × p)."""


def trajectory(
    kind,
    problem,
    W,
    x,
    y,
    steps,
    *,
    outer_step,
    inner_step,
    inner_iterations,
    oracle,
    oracle_iterations,
    oracle_step=None,
    homogeneous=False,
    carry=True,
) -> list[Iterate]:
    """The iterates of DBO, DBOGT or deterministic DSBO after 0, 1, …, `steps` outer iterations."""
    n, p, q = len(W), x.shape[1], y.shape[1]
    v = last_gy = np.zeros((n, q))
    u = last_h = np.zeros((n, p))
    cold = np.zeros((n, q, p) if oracle == "JHIP" else (n, q))
    z = Y = last_G = cold
    iterates = [Iterate(x, y, z)]
    for k in range(steps):
        if homogeneous:
            for t in range(inner_iterations):
                y = y - _at(inner_step, t) * problem.gy(x, y)
        elif kind == "DSBO":
            for t in range(inner_iterations):
                y = W @ y - _at(inner_step, t) * problem.gy(x, y)
        else:
            gy = problem.gy(x, y)
            v = W @ v + gy - last_gy if carry and k > 0 else gy
            for t in range(inner_iterations):
                y = W @ y - _at(inner_step, t) * v
                before, gy = gy, problem.gy(x, y)
                v = W @ v + gy - before
            last_gy = gy

        H, J, fy = problem.H(x, y), problem.J(x, y), problem.fy(x, y)
        if oracle == "AID":
            z = np.stack([conjugate_gradients(H[i], fy[i], z[i], oracle_iterations) for i in range(n)])
            h = problem.fx(x, y) - np.einsum("npq,nq->np", J, z)
        else:
            right_hand_side = J.swapaxes(1, 2) if oracle == "JHIP" else fy
            G = _times(H, z) - right_hand_side
            Y = _mixed(W, Y) + G - last_G if carry and k > 0 else G
            for t in range(oracle_iterations):
                z = _mixed(W, z) - _at(oracle_step, t) * Y
                before, G = G, _times(H, z) - right_hand_side
                Y = _mixed(W, Y) + G - before
            last_G = G
            product = np.einsum("nqp,nq->np", z, fy) if oracle == "JHIP" else np.einsum("npq,nq->np", J, z)
            h = problem.fx(x, y) - product
        z = z if carry else cold

        if kind == "DBOGT":
            u = W @ u + h - last_h if k > 0 else h
            last_h = h
        else:
            u = h
        x = W @ x - _at(outer_step, k) * u
        iterates.append(Iterate(x, y, z))
    return iterates


def single_machine(
    problem, x, y, steps, *, outer_step, inner_step, inner_iterations, cg_steps, carry=True
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bilevel descent as one machine does it: gradient descent on y, conjugate gradients, a step on x."""
    v = np.zeros_like(y)
    iterates = [(x, y)]
    for _ in range(steps):
        for _ in range(inner_iterations):
            y = y - inner_step * problem.gy(x[None], y[None])[0]
        H, J = problem.H(x[None], y[None])[0], problem.J(x[None], y[None])[0]
        v = conjugate_gradients(H, problem.fy(x[None], y[None])[0], v if carry else np.zeros_like(y), cg_steps)
        x = x - outer_step * (problem.fx(x[None], y[None])[0] - J @ v)
        iterates.append((x, y))
    return iterates


def conjugate_gradients(H, b, v, steps):
    """At most `steps` steps on H v = b; fewer only where nothing but rounding is left to remove."""
    r = b - H @ v
    d, rr = r, r @ r
    for _ in range(steps):
        if rr <= np.finfo(float).eps ** 2 * (b @ b):
            break
        Hd = H @ d
        alpha = rr / (d @ Hd)
        v, r = v + alpha * d, r - alpha * Hd
        rr, before = r @ r, rr
        d = r + rr / before * d
    return v


def network_minimiser(problem, x):
    """argmin_y mean_j g_j(x_j, y), by Newton's method."""
    n = len(x)
    y = np.zeros((n, problem.q))
    for _ in range(50):
        y = y - np.linalg.solve(problem.H(x, y).mean(axis=0), problem.gy(x, y).mean(axis=0))
    return y[0]


def own_minimisers(problem, x):
    """argmin_y g_i(x_i, y) of every agent, by Newton's method."""
    y = np.zeros((len(x), problem.q))
    for _ in range(50):
        y = y - np.linalg.solve(problem.H(x, y), problem.gy(x, y)[..., None])[..., 0]
    return y


def _at(step, index):
    return float(step(index)) if callable(step) else step


def _mixed(W, matrices):
    """Σ_j w_ij M_j for every agent i."""
    return np.tensordot(W, matrices, axes=1)


def _times(H, z):
    """H_i times agent i's matrix or vector."""
    return H @ z if z.ndim == 3 else np.einsum("nab,nb->na", H, z)
