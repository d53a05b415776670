"""The latency law on this machine: a step costs what verification costs, as long as the rollout fits beside it
(Mirror-SD, arXiv 2510.13161, equation 10).

Prompt by prompt: a mirror run with the paced draft; the bare verifications of the very same windows, with no draft
anywhere; a mirror run with the draft at its own speed. Before the target is inflated it decodes all prompts plainly,
which is what every run's tokens are compared with.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from mirror_mlx.bench import pairs, prompts
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.figures import Sample, summarise
from mirror_mlx.bench.inflate import count_parameters
from mirror_mlx.bench.lab import Cores, Others, Pace, PacedDraft
from mirror_mlx.bench.pairs import deepest_exit, passes
from mirror_mlx.bench.problems import PROBLEMS
from mirror_mlx.draft.protocol import width_of
from mirror_mlx.engine import Engine
from mirror_mlx.errors import DraftError, ModelError
from mirror_mlx.messages import Predictor
from mirror_mlx.options import Options
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.trace import Trace, clock
from mirror_mlx.verify import verify

TOKENS = 160  # of each answer
DECODING = ("num_draft_tokens", "kappa", "max_roots", "predictor")
Report = Callable[[int, str], None]
"""Called as (steps done, what is being done)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Raises UsageError for what is out of range.

    params      parameters of the inflated target; 0: as it is
    pass_ms     how long each of the paced draft's passes takes; 0: as long as it does
    prompts     a file (see `bench.prompts.read`); None: built-in problems
    held_out    not all of the file but this share from its end; 0: all
    steps       measured steps, at least
    exit_layer  None: the deepest that leaves a rollout its time, and at most half
    streams     of a streaming draft; None: all it has
    unpaced     run the draft at its own speed as well
    """

    model: str = "demo"
    draft_model: str | None = None
    params: int = 160_000_000
    pass_ms: float = 10.0
    prompts: str | None = None
    held_out: float = 0.0
    steps: int = 100
    num_draft_tokens: int = 7
    kappa: int = 8
    max_roots: int = 24
    exit_layer: int | None = None
    predictor: Predictor = "hybrid"
    temp: float = 0.0
    seed: int = 0
    unpaced: bool = True
    streams: int | None = None

    def __post_init__(self) -> None:
        at_least(self, 1e12, steps=1, params=0, pass_ms=0, temp=0, seed=0)
        prompts.check_share(self.held_out)
        Options.of({name: getattr(self, name) for name in DECODING})


def measure(settings: Settings, report: Report = lambda done, what: None) -> tuple[dict[str, Any], list[Trace]]:
    """The figures, as one JSON object would give them, and the paced runs' timelines."""
    report(0, "loading")
    pair = pairs.load(settings.model, settings.draft_model)
    model, tokenizer, draft = pair.model, pair.tokenizer, pair.draft
    count = 1 + settings.steps // 8
    texts = prompts.read(settings.prompts, count, settings.held_out) if settings.prompts else PROBLEMS[:count]
    asked = [prompts.tokens(tokenizer, text) for text in texts]
    sampling = Sampling(temperature=settings.temp, seed=settings.seed)
    cores = Cores()
    with cores.for_target():
        report(0, "plain decoding")
        with Engine(model, tokenizer, mode="ar", exit_layer=settings.exit_layer) as engine:
            plain = [_decode(engine, prompt, sampling) for prompt in asked]
        report(0, "inflating")
        params = pair.inflate(settings.params)
        pace = Pace()
        engine = Engine(
            model,
            tokenizer,
            PacedDraft(draft, pace, joins=False),  # glue first, as the law has it
            mode="mirror",
            draft_work=cores.for_draft,
            tap=pair.adapter,
            **{name: getattr(settings, name) for name in DECODING},
            streams=settings.streams,
            exit_layer=settings.exit_layer
            or deepest_exit(pair, settings.num_draft_tokens, settings.pass_ms, settings.streams),
        )
        engine.worth = engine.times = None  # every step has the tap and every pass is begun, as the law has it
        with engine:
            found, runs = _runs(engine, settings, asked, plain, sampling, pace, report)
    found |= _budget(found, passes(draft, settings.num_draft_tokens, settings.streams)) | {"width": width_of(draft)}
    drafter = getattr(draft, "model", None)
    found["lab"] = asdict(settings) | {
        "prompts": None if settings.prompts is None else Path(settings.prompts).name,
        "params": params,
        "draft_params": None if drafter is None else count_parameters(drafter),
        "exit_layer": engine.target.exit_layer,
        "layers": engine.target.num_layers,
        "cores": str(cores),
    }
    return found, runs


def _runs(
    engine: Engine,
    settings: Settings,
    asked: Sequence[list[int]],
    plain: Sequence[list[int]],
    sampling: Sampling,
    pace: Pace,
    report: Report,
) -> tuple[dict[str, Any], list[Trace]]:
    length = settings.num_draft_tokens
    paced, free = Sample(), Sample()
    bare: list[_Bare] = []
    tapped: list[_Bare] = []
    runs: list[Trace] = []
    prefixes: list[int] = []
    identical = True
    _decode(engine, asked[0], sampling, 24)  # warms up both devices
    others = Others()
    for prompt, wanted in cycle(zip(asked, plain, strict=True)):
        before = len(paced.steps)
        pace.ns = round(settings.pass_ms * 1e6)
        report(before, "paced draft")
        identical &= _decode(engine, prompt, sampling) == wanted
        paced.add(engine.trace, length)
        runs.append(engine.trace)
        prefixes += _prefixes(runs[-1])
        report(len(paced.steps), "bare verify")
        bare += _bare(engine, prompt, runs[-1], sampling, length)
        if settings.predictor != "draft":
            tapped += _bare(engine, prompt, runs[-1], sampling, length, tap=True)
        if settings.unpaced:
            pace.ns = 0
            report(len(paced.steps), "draft at its own speed")
            identical &= _decode(engine, prompt, sampling) == wanted
            free.add(engine.trace, length)
        if len(paced.steps) >= settings.steps:
            break
        if len(runs) >= len(asked) and not paced.steps:
            raise ModelError("no step had a full window: the answers are too short for this --num-draft-tokens")
    report(settings.steps, "done")
    alone = [one.whole for one in bare]
    found = summarise(paced, alone)
    found["tap_ms"] = median(prefixes) / 1e6 if prefixes else None
    found["tapped_verify_ms"] = median(one.whole for one in tapped or bare) / 1e6
    found["commit_ms"] = median(one.commit for one in tapped or bare) / 1e6
    found["identical"] = identical
    found["other_programs_cores"] = others.cores()
    if settings.unpaced:
        found["unpaced"] = summarise(free, alone)
    return found, runs


def _budget(found: dict[str, Any], count: int) -> dict[str, Any]:
    """Whether a rollout fits: from the glue on for the draft's roots; for the tap's from the next pass after it."""
    one, tap_ms = found["pass_ms"], found["tap_ms"]
    rollout, after_glue = count * one, found["verify_ms"] - one
    after_tap = None if tap_ms is None else found["verify_ms"] - tap_ms - one
    return {
        "passes": count,
        "draft_serial_ms": rollout,
        "draft_serial_over_verify": rollout / found["verify_ms"],
        "after_glue_ms": after_glue,
        "after_tap_ms": after_tap,
        "fits": rollout <= after_glue and (after_tap is None or rollout <= after_tap),
    }


def _decode(engine: Engine, prompt: list[int], sampling: Sampling, limit: int = TOKENS) -> list[int]:
    tokens = [response.token for response in engine.stream(prompt, max_tokens=limit, sampling=sampling)]
    if engine.trace.fault is not None:
        raise DraftError(f"{engine.trace.fault}: the draft must last for this measurement")
    return tokens


class _Bare(NamedTuple):
    """A verification while no draft runs, ns: with its commit, and of that the commit alone."""

    whole: int
    commit: int


def _bare(
    engine: Engine, prompt: list[int], trace: Trace, sampling: Sampling, length: int, *, tap: bool = False
) -> list[_Bare]:
    """The full windows of a run once more, without the draft; with the tap, if that is read."""
    target, tokens, times = engine.target, list(prompt), []
    target.prefill(tokens[:-1], Sampler(sampling))
    for step in trace.steps:
        window, outcome = step.window.tokens, step.outcome
        began = clock()
        seen = target.begin(tokens[-1], window, tokens, tap=tap)
        heard = None if seen is None else seen.heard()
        target.proceed()
        chosen = target.finish()
        ended = clock()
        verify(window, chosen)
        target.commit(outcome)
        if heard is not None:
            heard()
        if len(window) == length:
            times.append(_Bare(clock() - began, clock() - ended))
        tokens += [*window[: outcome.accepted], outcome.token]
    return times


def _prefixes(trace: Trace) -> list[int]:
    """From each verification's start to its tap, ns."""
    starts = sorted(span.start for span in trace.spans if span.name == "verify")
    return [tap - max(start for start in starts if start < tap) for tap in trace.taps]
