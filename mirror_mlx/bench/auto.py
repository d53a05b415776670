"""No regret, measured: mode "auto" beside plain decoding with hostile drafts, and beside fixed settings in a sweep.

All are decoded in turn in one process, prompt by prompt, on views of the same weights; every token is compared.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import mlx.core as mx

from mirror_mlx import blas
from mirror_mlx.bench import pairs, planned, prompts
from mirror_mlx.bench.hostile import KINDS, hostile
from mirror_mlx.bench.lab import Cores, Others, Pace, PacedDraft
from mirror_mlx.bench.peers import view
from mirror_mlx.draft import Draft
from mirror_mlx.engine import Engine
from mirror_mlx.errors import UsageError
from mirror_mlx.sampling import Sampling
from mirror_mlx.trace import StepTrace

Report = Callable[[int, str], None]
FIXED: Mapping[str, Mapping[str, Any]] = {
    "ar": {"mode": "ar"},
    **{f"sd {n}": {"mode": "sd", "num_draft_tokens": n, "streams": 0} for n in (3, 7)},
    **{f"sd streams {n}": {"mode": "sd", "num_draft_tokens": n} for n in (4, 7)},
    **{f"mirror main {n}": {"mode": "mirror", "num_draft_tokens": n, "streams": 0} for n in (4, 7)},
    **{f"mirror {n}": {"mode": "mirror", "num_draft_tokens": n} for n in (4, 7, 10)},
    **{f"mirror exact {n}": {"mode": "mirror", "num_draft_tokens": n, "stream_mode": "exact"} for n in (7, 11)},
    **{
        f"{one} exact 7": {"mode": "mirror", "num_draft_tokens": 7, "stream_mode": "exact", "predictor": one}
        for one in ("draft", "tap")
    },
}
"""What "auto" is compared with in a sweep."""
WINDOWS: Mapping[str, Mapping[str, Any]] = {
    "ar": {"mode": "ar"},
    **{f"mirror {n}": {"mode": "mirror", "num_draft_tokens": n, "stream_mode": "exact"} for n in (3, 5, 7, 9, 11, 15)},
    "growing": {"mode": "mirror", "num_draft_tokens": 15, "stream_mode": "exact", "adaptive": True},
}
"""And where only windows differ: of one length each, and such as grow and shrink."""
SIZES = (0, 20_000_000, 60_000_000)
_SAFE = {"draft_timeout": 30.0, "max_roots": 24}
PACES = (0.0, 5.0, 20.0, 60.0)


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Raises UsageError for what is out of range.

    params   of the inflated target; 0: as it is
    pass_ms  how long each of the draft's passes takes; 0: as long as it does
    prompts  a file (see `bench.prompts.read`); None: problems made from the seed
    limit    at most so many of them; max_tokens: of each answer; rounds: how often each is decoded
    """

    model: str = "demo"
    draft_model: str | None = None
    params: int = 160_000_000
    pass_ms: float = 10.0
    temp: float = 0.0
    prompts: str | None = None
    held_out: float = 0.0
    limit: int = 4
    max_tokens: int = 128
    rounds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("max_tokens", 1), ("rounds", 1), ("params", 0), ("pass_ms", 0), ("temp", 0)):
            if not least <= getattr(self, name) < 1e12:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be {least} or more")
        prompts.check_share(self.held_out)


class _Lab:
    """The pair on its cores, and engines on views of it."""

    def __init__(self, settings: Settings, mixed: bool = False) -> None:
        self.settings = settings
        self.cores = Cores()
        self.pair = pairs.load(settings.model, settings.draft_model)
        texts = prompts.asked(settings.prompts, settings.limit, settings.held_out, settings.seed)
        if mixed and settings.prompts is not None:
            both = zip(texts, prompts.made(settings.seed, settings.limit), strict=False)
            texts = [text for pair in both for text in pair][: settings.limit]
        self.asked = [prompts.tokens(self.pair.tokenizer, text) for text in texts]
        self.params = self.pair.inflate(settings.params) if settings.params else 0

    def engine(self, draft: Draft | None, **options: Any) -> Engine:
        pair = self.pair
        return Engine(
            view(pair.model), pair.tokenizer, draft, draft_work=self.cores.for_draft, tap=pair.adapter, **options
        )

    def draft_for(self, options: Mapping[str, Any]) -> Draft | None:
        return None if options["mode"] == "ar" else self.draft()

    def draft(self) -> Draft:
        """The pair's, paced, on weights of its own: each engine closes its draft."""
        found = pairs.load(self.settings.model, self.settings.draft_model).draft
        return PacedDraft(found, Pace(self.settings.pass_ms / 1e3))


def hostile_rows(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """`drafts`: for each kind of hostile draft, on the lab's pair and on the pair as it is, how "auto" compares with
    plain decoding. speed: seconds of plain decoding ÷ seconds of auto, over all answers; spread: of single answers."""
    blas.set_threads(1)
    rows, done = [], 0
    for size in dict.fromkeys((settings.params, 0)):
        lab = _Lab(replace(settings, params=size, pass_ms=settings.pass_ms if size else 0.0))
        with lab.cores.for_target(), lab.engine(None, mode="ar") as plain:
            for kind in KINDS:
                draft = hostile(kind, lab.draft(), plain.target.vocab_size)
                with lab.engine(draft, mode="auto") as auto:
                    began, others = time.perf_counter(), Others()
                    auto.calibrate()
                    calibrated = time.perf_counter() - began
                    found = _in_turn({"ar": plain, "auto": auto}, lab, _told(report, done, kind))
                    done += settings.rounds * len(lab.asked) * 2
                    rows.append(
                        {"params": lab.params, "draft": kind, "calibration_s": calibrated} | _compared(found)
                        | {"other_programs_cores": others.cores()}
                    )  # fmt: skip
    return {"setup": _setup(settings), "drafts": rows}


def sweep_rows(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """`settings`: target's and draft's size, temperature and kind of prompt, each with the tokens a second of every
    fixed setting and of "auto", how much of the best fixed one auto reaches, and what the throughput model makes of
    them (`plan`, see `planned.compared`)."""
    return _swept(settings, FIXED, points(settings), report)


def window_rows(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """The same for windows of different lengths, at one size and pace, on prompts of both kinds in turn."""
    temps = (replace(settings, temp=temp) for temp in (0.0, 1.0))
    return _swept(settings, WINDOWS, temps, report, mixed=True)


def _swept(
    settings: Settings,
    fixed: Mapping[str, Mapping[str, Any]],
    asked: Iterable[Settings],
    report: Report,
    mixed: bool = False,
) -> dict[str, Any]:
    blas.set_threads(1)
    rows, done = [], 0
    for point in asked:
        lab = _Lab(point, mixed)
        with ExitStack() as stack:
            stack.enter_context(lab.cores.for_target())
            engines = {
                name: stack.enter_context(lab.engine(lab.draft_for(options), **_SAFE, **options))
                for name, options in {**fixed, "auto": {"mode": "auto"}}.items()
            }
            engines["auto"].calibrate()
            others = Others()
            label = f"{point.params / 1e6:.0f} M, {point.pass_ms:g} ms, T {point.temp:g}"
            found = _in_turn(engines, lab, _told(report, done, label))
            done += len(engines) * len(lab.asked) * settings.rounds
            rates = {name: _rate(of) for name, of in found.items()}
            auto = rates.pop("auto")
            best = max(rates, key=rates.__getitem__)
            rows.append({
                "params": lab.params, "pass_ms": point.pass_ms, "temperature": point.temp,
                "prompts": "both" if mixed else "own" if point.prompts is None else "file", "auto": auto, "best": best,
                "best_rate": rates[best], "share": auto / rates[best], "plain": rates["ar"], "rates": rates,
                "identical": _identical(found), "other_programs_cores": others.cores(),
                "hybrid": _hybrid(rates),
                "plan": planned.compared(_measured(found, engines), engines["auto"].calibration[0].costs),
            })  # fmt: skip
    return {
        "setup": _setup(settings), "settings": rows, "worst_share": min(row["share"] for row in rows),
        "plan_error": max(row["plan"]["error"] for row in rows),
        "plan_median_error": median(row["plan"]["median_error"] for row in rows),
    }  # fmt: skip


def _hybrid(rates: Mapping[str, float]) -> float | None:
    """What a hybrid reaches of the better of its predictors alone; None: it was not measured."""
    alone = [rates[f"{one} exact 7"] for one in ("draft", "tap") if f"{one} exact 7" in rates]
    return rates["mirror exact 7"] / max(alone) if alone else None


def _measured(found: Mapping[str, Sequence["_Answer"]], engines: Mapping[str, Engine]) -> dict[str, planned.Measured]:
    """The fixed settings' answers that are long enough."""
    several = {name: [answer for answer in of if len(answer.steps) > 2] for name, of in found.items() if name != "auto"}
    return {
        name: planned.Measured(
            engines[name].setting, [step for answer in of for step in answer.steps],
            sum(answer.between for answer in of), sum(answer.decoding for answer in of),
        ) for name, of in several.items() if of
    }  # fmt: skip


def points(settings: Settings) -> Iterator[Settings]:
    """The sweep: sizes of the target × paces of the draft × temperatures × kinds of prompts."""
    kinds = [settings.prompts] if settings.prompts is None else [None, settings.prompts]
    for size in SIZES:
        for pace in PACES:
            for temp in (0.0, 1.0):
                for kind in kinds:
                    share = settings.held_out if kind else 0.0
                    yield replace(settings, params=size, pass_ms=pace, temp=temp, prompts=kind, held_out=share)


@dataclass(frozen=True, slots=True)
class _Answer:
    tokens: int
    seconds: float
    text: tuple[int, ...]
    decoding: float = 0.0  # seconds from the end of the first step to the beginning of the last
    steps: Sequence[StepTrace] = ()

    @property
    def between(self) -> int:
        """Tokens of those seconds."""
        return sum(step.outcome.accepted + 1 for step in self.steps[1:-1])


def _in_turn(engines: Mapping[str, Engine], lab: _Lab, report: Callable[[int, str], None]) -> dict[str, list[_Answer]]:
    """Every prompt by every engine, round after round; who begins changes. The first prompt is decoded once before."""
    s = lab.settings
    found: dict[str, list[_Answer]] = {name: [] for name in engines}
    for engine in engines.values():
        _answer(engine, lab.asked[0], s)
    done, names = 0, list(engines)
    for number in range(s.rounds * len(lab.asked)):
        prompt = lab.asked[number % len(lab.asked)]
        turn = (number + number // len(lab.asked)) % len(names)
        for name in [*names[turn:], *names[:turn]]:
            report(done, name)
            found[name].append(_answer(engines[name], prompt, s))
            done += 1
    return found


def _answer(engine: Engine, prompt: list[int], s: Settings) -> _Answer:
    began = time.perf_counter()
    text = tuple(r.token for r in engine.stream(prompt, s.max_tokens, Sampling(temperature=s.temp, seed=s.seed)))
    ended, steps = time.perf_counter(), tuple(engine.trace.steps)
    verified = sorted(span.start for span in engine.trace.spans if span.name == "verify" and span.lane == "target")
    decoding = (verified[-1] - verified[1]) / 1e9 if len(verified) > 2 else 0.0
    return _Answer(len(text), ended - began, text, decoding, steps)


def _compared(found: Mapping[str, Sequence[_Answer]]) -> dict[str, Any]:
    plain, auto = found["ar"], found["auto"]
    ratios = [one.seconds / other.seconds for one, other in zip(plain, auto, strict=True)]
    return {
        "plain_tokens_per_second": _rate(plain), "tokens_per_second": _rate(auto),
        "speed": sum(a.seconds for a in plain) / sum(a.seconds for a in auto),
        "median_speed": median(ratios), "speed_min_max": [min(ratios), max(ratios)],
        "tokens": sum(a.tokens for a in auto), "identical": _identical(found),
    }  # fmt: skip


def _rate(of: Sequence[_Answer]) -> float:
    """Tokens a second."""
    return sum(answer.tokens for answer in of) / sum(answer.seconds for answer in of)


def _identical(found: Mapping[str, Sequence[_Answer]]) -> bool:
    texts = [[answer.text for answer in of] for of in found.values()]
    return all(one == texts[0] for one in texts)


def _setup(settings: Settings) -> dict[str, Any]:
    return asdict(settings) | {"device": str(mx.default_device()), "cores": str(Cores())}


def _told(report: Report, done: int, what: str) -> Callable[[int, str], None]:
    return lambda more, name: report(done + more, f"{what}: {name}")
