"""The costs of a machine that is only described: what reading weights, multiplying and sending between Macs take. Pure.

A forward of few rows is bound by reading the weights once (bytes ÷ bandwidth), one of many rows by multiplying
(2 · parameters · rows ÷ FLOP/s). Sharded over Macs, both are divided among them, and the target waits for two
all-reduces in each layer, the draft for two in each pass (Mirror-SD, arXiv 2510.13161, C).
"""

from dataclasses import dataclass

from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.curve import Curve

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Machine:
    """One of these Macs, and how many work together.

    bandwidth, compute          of the GPU: GB/s, TFLOP/s
    ane_bandwidth, ane_compute  of the Neural Engine
    use                         the share of both that is reached
    link_us                     an all-reduce among the Macs, µs
    dispatch_ms                 what a forward costs beside, of either device
    """

    bandwidth: float
    compute: float
    ane_bandwidth: float
    ane_compute: float
    macs: int = 1
    use: float = 0.7
    link_us: float = 60.0
    dispatch_ms: float = 0.3


@dataclass(frozen=True, slots=True)
class Models:
    """Parameters and bits a weight; the target's layers; what the draft's streams are.

    row_cost  how much each row more adds to a forward that reads weights, as a share of it: quantised matrices are
              unpacked for each row (mlx #3852, #4265)
    """

    target: float
    layers: int
    draft: float
    target_bits: float = 16.0
    draft_bits: float = 16.0
    streams: int = 2
    row_cost: float = 0.02


def costs(machine: Machine, models: Models) -> Costs:
    """What they take.

    >>> mac = Machine(bandwidth=800, compute=27, ane_bandwidth=100, ane_compute=10)
    >>> found = costs(mac, Models(target=8e9, layers=36, draft=0.6e9))
    >>> round(found.plain, 1), round(found.drafts[2, False].one.at(1), 1)
    (28.9, 17.4)
    """
    m = machine
    reads = models.target * models.target_bits / 8 / (m.bandwidth * m.use * m.macs) / 1e6
    waits = 2 * models.layers * m.link_us / 1e3 if m.macs > 1 else 0.0
    verify = {
        rows: max(
            reads * (1 + models.row_cost * (rows - 1)), 2 * models.target * rows / (m.compute * m.use * m.macs) / 1e9
        ) + waits + m.dispatch_ms
        for rows in _ROWS
    }  # fmt: skip
    per_pass = 1 + models.streams
    read = models.draft * models.draft_bits / 8 / (m.ane_bandwidth * m.use * m.macs) / 1e6
    between = 2 * m.link_us / 1e3 if m.macs > 1 else 0.0

    def one(columns: float) -> float:
        return max(read, 2 * models.draft * columns / (m.ane_compute * m.use * m.macs) / 1e9) + between + m.dispatch_ms

    streams = DraftCosts(
        Curve.of({rows: one(rows) for rows in _ROWS}),
        Curve.of({branches: one(branches * (per_pass + models.streams)) for branches in _ROWS}),
        float(per_pass),
        joint=Curve.of({rows: one(rows + per_pass + models.streams) for rows in _ROWS}),
    )
    alone = DraftCosts(streams.glue, Curve.of({branches: one(branches) for branches in _ROWS}))
    exits = {models.layers // 4: 0.25, models.layers // 2: 0.5, models.layers * 3 // 4: 0.75}
    drafts = {(0, False): alone, **({(models.streams, False): streams} if models.streams else {})}
    return Costs(verify[1], Curve.of(verify), 0.02 * verify[1], exits, 1.0, 0.1, drafts)
