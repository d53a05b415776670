"""The paper's four variants: serial speculation and Mirror, each with an autoregressive and a streaming draft.

For each: tokens a step, and what a window costs the draft. J is the number of its passes, η̄ how many tokens a pass
proposes for a branch (arXiv 2510.13161, 3.2).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import mlx.core as mx

from mirror_mlx import blas, loading
from mirror_mlx.bench import prompts
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.inflate import inflate, widened
from mirror_mlx.bench.lab import Cores, Others, Pace, PacedDraft
from mirror_mlx.draft import StreamingDraft, streaming
from mirror_mlx.draft.protocol import Draft, Joined
from mirror_mlx.draft.wrapped import Wrapped
from mirror_mlx.engine import Engine
from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.sampling import Sampling

Report = Callable[[int, str], None]
MODES = ("sd", "mirror")
MAIN = "main stream"


@dataclass(frozen=True)
class Settings:
    """What to compare.

    drafts   name → folder; of a streaming one the main stream runs alone too, as an autoregressive draft, and, if
             `exact`, all of it in exact mode
    streams  how many of a streaming draft's streams to use; None: all
    params   inflate the target to so many parameters; 0: as it is
    pass_ms  pace each draft pass to so many milliseconds; 0: as long as it takes
    roots    all outcomes prepared in a step of Mirror
    """

    model: str
    drafts: Mapping[str, str]
    temps: tuple[float, ...] = (0.0, 1.0)
    num_draft_tokens: int = 7
    kappa: int = 8
    roots: int = 64
    exact: bool = False
    streams: int | None = None
    params: int = 0
    pass_ms: float = 0.0
    prompts: str | None = None
    held_out: float = 0.0
    limit: int = 12
    max_tokens: int = 96
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, num_draft_tokens=1, kappa=1, roots=1, limit=1, max_tokens=1, params=0, pass_ms=0)


class Meter(Wrapped):
    """A draft that notes each pass, how long it took and what it proposed for each branch, and each step, how long it
    worked in it and in how many passes."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.passes: list[tuple[float, list[int]]] = []
        self.windows: list[tuple[float, int]] = []
        self._window, self._last, self._count = 0.0, 0.0, 0

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        return self._timed(lambda: self._draft.glue(tokens, candidates))

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        named, found = self._timed(lambda: super(Meter, self).join(tokens, candidates, root, after))
        self._passed(found)
        return named, found

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        found: Mapping[Key, Sequence[int]] = self._timed(lambda: self._draft.advance(keys))
        self._passed(found)
        return found

    def _passed(self, found: Mapping[Key, Sequence[int]]) -> None:
        self._count += 1
        self.passes.append((self._last, [len(tokens) for tokens in found.values()]))

    def commit(self, rows: int) -> None:
        self.windows.append((self._window, self._count))
        self._window, self._count = 0.0, 0
        super().commit(rows)

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = work()
        self._last = 1e3 * (time.perf_counter() - began)
        self._window += self._last
        return found


def measure(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """Run every variant on the same prompts. Returns figures by variant; `identical` compares with plain decoding."""
    blas.set_threads(1)
    cores = Cores()
    with loading.load(settings.model, mode="mirror") as engine:
        target = engine.target
        model, tokenizer, adapter, exit_layer = target.model, engine.tokenizer, target.adapter, target.exit_layer
    texts = prompts.asked(settings.prompts, settings.limit, settings.held_out, settings.seed)
    asked = [prompts.tokens(tokenizer, text) for text in texts]
    size = inflate(model, settings.params) if settings.params else 0
    adapter = widened(adapter, model)
    others, rows, done = Others(), [], 0
    ways = [
        (name, folder, mode, how) for name, folder in settings.drafts.items() for how in _hows(folder, settings.exact)
        for mode in MODES
    ]  # fmt: skip
    for temperature in settings.temps:
        sampling = Sampling(temperature=temperature, seed=settings.seed)
        plain: list[list[int]] | None = None
        for name, folder, mode, how in ways:
            exact = how == "exact"
            draft = loading.load_draft(Path(folder), model, tokenizer, main_stream=how == MAIN)
            told = {"streams": settings.streams, "stream_mode": "exact" if exact else "trust"}
            meter = Meter(PacedDraft(draft, Pace(settings.pass_ms / 1e3)))
            options = {
                "mode": mode, "num_draft_tokens": settings.num_draft_tokens, "kappa": settings.kappa,
                "max_roots": settings.roots, "exit_layer": exit_layer, "draft_timeout": 30.0,
            } | (told if isinstance(draft, StreamingDraft) else {})  # fmt: skip
            with (
                cores.for_target(),
                Engine(model, tokenizer, meter, draft_work=cores.for_draft, tap=adapter, **options) as engine,
            ):
                if plain is None:
                    plain = _plain(model, tokenizer, asked, sampling, settings.max_tokens, cores.for_target)
                label = ", ".join(filter(None, (mode, name, how)))
                row = _run(engine, meter, asked, plain, sampling, settings, partial(_told, report, done, label))
            done += len(asked)
            rows.append(
                {"variant": label, "mode": mode, "draft": name, "exact": exact, "temperature": temperature} | row
            )
    setup = {
        "model": Path(settings.model).name, "cores": str(cores), "params": size, "pass_ms": settings.pass_ms,
        "num_draft_tokens": settings.num_draft_tokens, "kappa": settings.kappa, "roots": settings.roots,
        "prompts": len(asked), "max_tokens": settings.max_tokens, "other_programs_cores": others.cores(),
        "device": str(mx.default_device()),
    }  # fmt: skip
    return {"setup": setup, "variants": rows, "streaming": _against(rows)}


def _hows(folder: str, exact: bool) -> tuple[str, ...]:
    """How a draft runs."""
    if not streaming.is_streaming(Path(folder)):
        return ("",)
    return (MAIN, "", "exact") if exact else (MAIN, "")


def _told(report: Report, done: int, label: str, number: int) -> None:
    report(done + number, label)


def _plain(
    model: Any, tokenizer: Any, asked: Sequence[list[int]], sampling: Sampling, limit: int,
    device: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> list[list[int]]:  # fmt: skip
    with Engine(model, tokenizer, mode="ar") as engine:
        return [[r.token for r in engine.stream(tokens, limit, sampling)] for tokens in asked]


def _run(
    engine: Engine, meter: Meter, asked: Sequence[list[int]], plain: Sequence[list[int]], sampling: Sampling,
    settings: Settings, report: Callable[[int], None],
) -> dict[str, Any]:  # fmt: skip
    for _ in engine.stream(asked[0], 16, sampling):
        pass
    meter.passes, meter.windows = [], []
    steps = tokens = hits = predicted = 0.0
    speeds, verifies = [], []
    identical = True
    for number, text in enumerate(asked):
        report(number)
        said = [r.token for r in engine.stream(text, settings.max_tokens, sampling)]
        identical &= said == plain[number]
        stats = engine.stats
        steps, tokens = steps + stats.steps, tokens + stats.tokens
        hits, predicted = hits + stats.hit_rate * stats.steps, predicted + stats.steps
        speeds.append(stats.generation_tps)
        verifies.append(stats.verify_ms)
    emitted = [count for _, counts in meter.passes for count in counts]
    windows = [(ms, count) for ms, count in meter.windows if count]
    return {
        "tokens_per_step": tokens / max(steps, 1),
        "hit_rate": hits / predicted if engine.options.mode == "mirror" and predicted else None,
        "passes_per_window": median(count for _, count in windows) if windows else 0,
        "tokens_per_pass": mean(emitted) if emitted else 0.0,
        "pass_ms": median(ms for ms, _ in meter.passes) if meter.passes else 0.0,
        "window_ms": median(ms for ms, _ in windows) if windows else 0.0,
        "verify_ms": median(verifies),
        "tokens_per_second": median(speeds),
        "steps": int(steps),
        "identical": identical,
    }


def _against(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each streaming variant against the autoregressive one of the same mode and temperature: a draft of its own, or
    else the main stream."""
    found = []
    for row in rows:
        base = next(
            (
                other
                for other in sorted(rows, key=lambda other: other["variant"].endswith(MAIN))
                if other["tokens_per_pass"] <= 1 < row["tokens_per_pass"]
                and (other["mode"], other["temperature"]) == (row["mode"], row["temperature"])
            ),
            None,
        )
        if base is not None:
            found.append({
                "variant": row["variant"], "temperature": row["temperature"],
                "window_time_ratio": row["window_ms"] / max(base["window_ms"], 1e-9),
                "tokens_per_step_ratio": row["tokens_per_step"] / max(base["tokens_per_step"], 1e-9),
            })  # fmt: skip
    return found
