"""The guard against jaxlib 0.10.2, in processes of its own: XLA reads its flags once."""

import os
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

FAULTY = metadata.version("jaxlib") == "0.10.2"


def _run(program: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout + done.stderr


def test_large_reductions_over_matrix_products_are_right_after_the_import():
    program = """
import hypergossip, jax, jax.numpy as jnp, warnings
warnings.simplefilter("error")
hypergossip.precautions.check_reductions()
x = jnp.zeros((40_000, 3)).at[:, 0].set(jnp.arange(40_000.0))
print(float(jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))(x)[-1]))
"""
    assert _run(program).strip() == str(float(np.float32(39_999) ** 2))


@pytest.mark.skipif(not FAULTY, reason="this jaxlib is not the one that needs the guard")
def test_a_guard_that_came_too_late_says_so():
    program = """
import jax.numpy as jnp
jnp.ones(3) + 1
import hypergossip
hypergossip.precautions.check_reductions()
"""
    assert "do not trust the results" in _run(program)
