"""Saving a run so that nothing is lost: atomic, checksummed, versioned, and without pickle.

Every process of a run writes its own agents into a shard, `step-<k>.<process>-of-<processes>.npz`
(`shards`). A checkpoint is the shards of all of them: it counts when all are there and undamaged
(`checkpoints`). Which run it belongs to stands in each (`identity`).
"""

from . import identity
from .checkpoints import Checkpoints

__all__ = ["Checkpoints", "identity"]
