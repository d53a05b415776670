"""Table 1 of Mirror-SD (arXiv 2510.13161) beside what the model of `throughput` says of the machine it was measured on.

The paper gives no acceptance by task. What its own vanilla speculation reached there tells: the acceptance at which our
model gives serial speculation that speed-up is the one Mirror is then predicted with. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mirror_mlx.tuning.chance import Chance, Expected
from mirror_mlx.tuning.costs import Costs
from mirror_mlx.tuning.inverse import inverse
from mirror_mlx.tuning.machine import Machine, Models, costs
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import predict

LENGTH, KAPPA = 7, 8
MACHINE = Machine(bandwidth=800, compute=27, ane_bandwidth=100, ane_compute=15, macs=8, link_us=25)
"""A group of eight M2 Ultra. Bandwidth is Apple's figure; the rest are estimates, as the paper gives none."""
TARGETS = {
    "Qwen3-14B": Models(target=14.8e9, layers=40, draft=0.6e9),
    "Qwen3-32B": Models(target=32.8e9, layers=64, draft=0.6e9),
}
TABLE = {
    ("Qwen3-14B", "translation"): (2.34, 4.13), ("Qwen3-14B", "summarization"): (1.76, 3.07),
    ("Qwen3-14B", "question answering"): (1.81, 3.18), ("Qwen3-14B", "mathematical reasoning"): (2.80, 5.32),
    ("Qwen3-14B", "retrieval"): (2.02, 3.49), ("Qwen3-14B", "conversation"): (2.07, 3.70),
    ("Qwen3-32B", "translation"): (2.74, 3.72), ("Qwen3-32B", "summarization"): (2.07, 3.14),
    ("Qwen3-32B", "question answering"): (2.06, 3.04), ("Qwen3-32B", "mathematical reasoning"): (3.33, 5.84),
    ("Qwen3-32B", "retrieval"): (2.33, 3.42), ("Qwen3-32B", "conversation"): (2.67, 3.59),
}  # fmt: skip
"""(vanilla speculation, Mirror) at T = 0; the rows whose model or temperature the paper mislabels are those of their
neighbours."""


@dataclass(frozen=True, slots=True)
class Row:
    """acceptance: at which serial speculation gets what the paper has; mirror: what we predict then, tap alone."""

    model: str
    task: str
    paper_serial: float
    paper_mirror: float
    acceptance: float
    tokens: float
    mirror: float


def rows(machine: Machine = MACHINE, hits: float = 0.9) -> Iterator[Row]:
    """hits: the share of outcomes prepared for; the paper's figure 7 has none of its axes labelled."""
    for (name, task), (serial, mirror) in TABLE.items():
        found = costs(machine, TARGETS[name])
        acceptance = _acceptance(found, serial)
        belief = Expected(acceptance, hits)
        exit_layer = TARGETS[name].layers // 2
        way = (TARGETS[name].streams, False)
        setting = Setting("mirror", LENGTH, LENGTH, KAPPA * (LENGTH + 1), "tap", exit_layer, way)
        said = predict(found, setting, belief)
        yield Row(name, task, serial, mirror, acceptance, said.tokens, said.rate * found.plain)


def _acceptance(found: Costs, speedup: float) -> float:
    def gain(acceptance: float) -> float:
        return predict(found, Setting("sd", LENGTH, LENGTH), Chance([acceptance])).rate * found.plain

    return inverse(gain, speedup, 0.0, 0.999)
