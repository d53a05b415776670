"""A short run of a pair: is its output the target's own, and do both devices work at once?"""

from collections.abc import Mapping
from typing import Any

from mirror_mlx import loading
from mirror_mlx.doctor.finding import Trouble
from mirror_mlx.doctor.timeline import draw
from mirror_mlx.engine import Engine
from mirror_mlx.sampling import Sampling
from mirror_mlx.trace import Trace

PROMPT = [{"role": "user", "content": "Tom has 3 boxes with 12 pencils in each. How many pencils does he have?"}]
TOKENS = 96


def examine(model: str, draft_host: str, keep: list[Trace]) -> tuple[str, Mapping[str, Any]]:
    """Raises Trouble where tokens differ or the draft was given up. The run's trace is appended to `keep`."""
    with loading.load(model, mode="ar") as engine:
        wanted, plain = _tokens(engine), engine.stats.generation_tps
    with loading.load(model, mode="mirror", draft_host=draft_host) as engine:
        _tokens(engine, 16)  # compiles kernels
        said, stats, trace = _tokens(engine), engine.stats, engine.trace
    keep.append(trace)
    figures = {
        name: getattr(stats, name)
        for name in ("draft_host", "mode", "reason", "steps", "tokens_per_step", "hit_rate", "verify_ms", "step_ms",
                     "draft_ms", "hidden_draft_ms", "rendezvous_us", "generation_tps")
    } | {"plain_tps": plain, "timeline": draw(trace)}  # fmt: skip
    if said != wanted:
        advice = "use --mode ar, and please report this with the output of mirror-mlx doctor --json"
        raise Trouble("its tokens are not the target's own", advice, figures)
    if stats.mode != "mirror":
        raise Trouble(f"the draft was given up ({stats.reason})", "use --draft-host mlx", figures)
    share = stats.hidden_draft_ms / stats.draft_ms if stats.draft_ms else 0.0
    return (
        f"tokens the target's own; draft on {stats.draft_host}; {stats.tokens_per_step:.2f} tokens a step, hit rate "
        f"{stats.hit_rate:.0%}, {share:.0%} of the draft's time hidden, {stats.generation_tps:.0f} tokens/s, plain "
        f"{plain:.0f}",
        figures,
    )  # fmt: skip


def _tokens(engine: Engine, count: int = TOKENS) -> list[int]:
    return [r.token for r in engine.stream(PROMPT, count, Sampling())]
