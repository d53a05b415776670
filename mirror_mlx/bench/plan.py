"""What to expect: the throughput model on a calibrated pair, or on a machine that is only described."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from mirror_mlx import loading
from mirror_mlx.bench.checks import at_least
from mirror_mlx.errors import UsageError
from mirror_mlx.tuning import paper as table
from mirror_mlx.tuning.chance import Expected
from mirror_mlx.tuning.choice import Reach
from mirror_mlx.tuning.choice import best as choose
from mirror_mlx.tuning.costs import Costs
from mirror_mlx.tuning.machine import Machine, Models, costs
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import predict

_GUESS = 0.8  # of proposals hold, where nobody says


@dataclass(frozen=True, slots=True)
class Settings:
    """What to plan for. Raises UsageError for what is out of range.

    bandwidth   None: the pair, as it was calibrated on this machine
    acceptance  None: as calibrated, or a guess
    hits        the share of outcomes prepared for by 64 roots
    """

    model: str = "demo"
    draft_model: str | None = None
    draft_host: str = "auto"
    bandwidth: float | None = None
    compute: float = 27.0
    ane_bandwidth: float = 100.0
    ane_compute: float = 15.0
    macs: int = 1
    link_us: float = 60.0
    target_params: float = 8e9
    target_bits: float = 16.0
    layers: int = 36
    draft_params: float = 6e8
    draft_bits: float = 16.0
    draft_streams: int = 2
    row_cost: float = 0.02
    acceptance: float | None = None
    hits: float = 0.9

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        return cls(**{field.name: given[field.name] for field in fields(cls)})

    def __post_init__(self) -> None:
        for name in ("compute", "ane_bandwidth", "ane_compute", "target_params", "target_bits", "draft_params",
                     "draft_bits", *(["bandwidth"] if self.bandwidth is not None else [])):  # fmt: skip
            if not 0 < getattr(self, name) < 1e15:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be more than 0")
        at_least(self, 1e6, macs=1, layers=2, draft_streams=0, link_us=0, row_cost=0)
        for name in ("acceptance", "hits"):
            given = getattr(self, name)
            if given is not None and not 0 <= given < 1:
                raise UsageError(f"{name} is {given}: it must be in [0, 1)")


def best(settings: Settings) -> dict[str, Any]:
    """`modes`: the best setting of each mode with what it is expected to bring; `costs`; `about`, in a line."""
    s = settings
    if s.bandwidth is None:
        found, reach, acceptance, about = _calibrated(s)
    else:
        machine = Machine(s.bandwidth, s.compute, s.ane_bandwidth, s.ane_compute, s.macs, link_us=s.link_us)
        models = Models(
            s.target_params, s.layers, s.draft_params, s.target_bits, s.draft_bits, s.draft_streams, s.row_cost
        )
        found, acceptance = costs(machine, models), s.acceptance if s.acceptance is not None else _GUESS
        reach = Reach(15, 64, ("draft", "tap", "hybrid"), tuple(costs(machine, models).exits))
        about = f"a machine as described: a token takes {found.plain:.1f} ms"
    belief = Expected(acceptance, s.hits)
    rows = [_row(found, Setting("ar"), belief)]
    for serial in (True, False):
        within = Reach(reach.length) if serial else reach
        if found.drafts and (serial or reach.predictors):
            setting, _ = choose(found, within, lambda setting: belief)
            if serial == (setting.mode == "sd"):
                rows.append(_row(found, setting, belief))
    about += f"; proposals hold with {acceptance:.2f}, {s.hits:.0%} of outcomes are foreseen"
    return {"about": about, "modes": rows, "costs": found.as_dict(), "acceptance": acceptance}


def _calibrated(s: Settings) -> tuple[Costs, Reach, float, str]:
    with loading.load(s.model, s.draft_model, mode="auto", draft_host=s.draft_host) as engine:
        found, reach = engine.calibration
    acceptance = s.acceptance if s.acceptance is not None else max(found.holds.values(), default=_GUESS)
    about = f"{s.model} on this machine: a token takes {found.costs.plain:.2f} ms"
    return found.costs, reach, acceptance, about


def _row(found: Costs, setting: Setting, belief: Expected) -> dict[str, Any]:
    said = predict(found, setting, belief)
    return {
        "mode": setting.mode, "setting": str(setting), "options": asdict(setting), "step_ms": said.step,
        "hit_ms": said.hit, "miss_ms": said.miss, "tokens_per_step": said.tokens,
        "tokens_per_second": 1e3 * said.rate, "speed": said.rate * found.plain,
    }  # fmt: skip


def paper(hits: float) -> dict[str, Any]:
    """Table 1 of the paper, predicted; and what the difference may come from."""
    rows = [asdict(row) for row in table.rows(hits=hits)]
    return {
        "machine": asdict(table.MACHINE), "rows": rows,
        "remarks": [
            "acceptance: at which serial speculation, as we model it, has the speed-up that the paper's has",
            "the paper says neither how long a pass, a verification or a link takes nor how often outcomes are "
            "foreseen: those are estimates, and the acceptance takes up what they are off by",
            "where the paper's Mirror is faster than ours its draft proposes better than its vanilla draft: the "
            "speculative-streaming draft is another model, trained for it",
            "two rows of the paper's table carry another model's or temperature's name; its order is followed",
        ],
    }  # fmt: skip
