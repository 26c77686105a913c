"""The one table of algorithms: a row here puts an algorithm through every test that all must pass."""

from dataclasses import dataclass

import hypergossip as hg


@dataclass(frozen=True)
class Row:
    """An algorithm with settings that suit the tests' problems."""

    name: str
    algorithm: hg.algorithms.Algorithm
    homogeneous: bool


def _rows() -> list[Row]:
    rows = []
    for kind in (hg.DBO, hg.DBOGT, hg.DSBO):
        for homogeneous in (False, True):
            for carry in (True, False):
                own = {"batch_size": 4} if kind is hg.DSBO else {}
                algorithm = kind(
                    outer_step=0.02,
                    inner_step=0.1,
                    inner_iterations=3,
                    hypergradient=_oracle(kind, homogeneous),
                    homogeneous=homogeneous,
                    carry=carry,
                    **own,
                )
                case = f"{'homogeneous' if homogeneous else 'heterogeneous'}-{'carry' if carry else 'letter'}"
                rows.append(Row(f"{kind.__name__}-{case}", algorithm, homogeneous))
    vectors = hg.HIGP(step=0.1, iterations=4)
    rows.append(Row("DBOGT-HIGP", hg.DBOGT(0.02, 0.1, 3, vectors), homogeneous=False))
    rows.append(Row("DSBO-HIGP", hg.DSBO(0.02, 0.1, 3, vectors, carry=False, batch_size=4), homogeneous=False))
    return rows


def _oracle(kind, homogeneous):
    if not homogeneous:
        return hg.JHIP(step=0.1, iterations=4)
    return hg.Neumann(step=0.1, terms=4) if kind is hg.DSBO else hg.AID(iterations=3)


ROWS = _rows()
NAMES = [row.name for row in ROWS]
