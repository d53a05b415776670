"""A load that comes in the middle of an answer and goes again: does mode "auto" notice, and does it come back?

Each prompt is decoded plainly and in mode "auto", in turn. After a third of the tokens another program begins, after
two thirds it ends; what counts is each third's tokens a second, without the tokens at its edges.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count, pairwise
from statistics import median
from typing import Any

import mlx.core as mx

from mirror_mlx import blas
from mirror_mlx.bench import pairs, prompts
from mirror_mlx.bench.contend import Load, Settings, Start, loads, started
from mirror_mlx.bench.lab import Cores, Pace, PacedDraft
from mirror_mlx.bench.peers import view
from mirror_mlx.engine import Engine
from mirror_mlx.errors import UsageError
from mirror_mlx.sampling import Sampling

Report = Callable[[int, str], None]
_EDGE = 0.15  # of a third, at its beginning, is not counted: what happens there is noticed first


@dataclass(frozen=True, slots=True)
class Phases:
    """Tokens a second before the load, under it, and after it."""

    before: float
    under: float
    after: float


def answer(engine: Engine, prompt: Sequence[int], limit: int, load: Load, start: Start) -> tuple[Phases, list[int]]:
    """One answer with a load in its middle third. The text must have `limit` tokens: nothing ends it."""
    tokens: list[int] = []
    times = [time.perf_counter()]
    with ExitStack() as stack:
        for response in engine.stream(list(prompt), limit, Sampling()):
            tokens.append(response.token)
            times.append(time.perf_counter())
            if len(tokens) == limit // 3:  # what it takes to begin counts for the next token, at an edge
                stack.enter_context(start(load))
            elif len(tokens) == 2 * limit // 3:
                stack.close()
    if len(tokens) < limit:
        raise UsageError(f"max_tokens is {limit}: the context is full after {len(tokens)}")
    edges = [0, limit // 3, 2 * limit // 3, limit]
    rates = []
    for first, last in pairwise(edges):
        begins = first + round(_EDGE * (last - first))
        rates.append((last - begins) / (times[last] - times[begins]))
    return Phases(*rates), tokens


def measure(settings: Settings, report: Report = lambda done, what: None, start: Start = started) -> dict[str, Any]:
    """`through`: for no load and for each, plain decoding's and auto's tokens a second in each third; `under_load`,
    auto ÷ plain in the second, and `least_under_load`, in the answer where it is least; `recovered`, auto in the third
    ÷ in the same third of the answer without a load (medians over answers); `identical`: to plain decoding without a
    load."""
    blas.set_threads(1)
    report(0, "loading")
    cores = Cores()
    planned = [Load("none"), *(load for load in loads(cores) if load.kind != "none")]
    pair = pairs.load(settings.model, settings.draft_model)
    texts = prompts.asked(settings.prompts, settings.limit, settings.held_out, settings.seed)
    asked = [prompts.tokens(pair.tokenizer, text) for text in texts]
    with cores.for_target():
        params = pair.inflate(settings.params)
        draft = PacedDraft(pair.draft, Pace(settings.pass_ms / 1e3))
        # Without a tokenizer nothing ends an answer before it has its tokens.
        with (
            Engine(view(pair.model), mode="ar") as plain,
            Engine(view(pair.model), None, draft, mode="auto", draft_work=cores.for_draft, tap=pair.adapter) as auto,
        ):
            auto.calibrate()
            for engine in (plain, auto):
                answer(engine, asked[0], settings.max_tokens, Load("none"), start)
            rows = _rows({"ar": plain, "auto": auto}, asked, planned, settings, report, start)
    setup = asdict(settings) | {"params": params, "cores": str(cores), "device": str(mx.default_device())}
    return {"setup": setup, "through": rows}


def _rows(
    engines: Mapping[str, Engine], asked: Sequence[list[int]], planned: Sequence[Load], settings: Settings,
    report: Report, start: Start,
) -> list[dict[str, Any]]:  # fmt: skip
    """A prompt is decoded under all loads, by both engines, before the next one is: what is compared lies close
    together."""
    phases: dict[tuple[str, str], list[Phases]] = {(load.name, name): [] for load in planned for name in engines}
    same = {load.name: True for load in planned}
    answers = count()
    for number in range(settings.rounds * len(asked)):
        texts = []
        for load in planned:
            for name in sorted(engines, reverse=bool(number % 2)):
                report(next(answers), f"{load.name}: {name}")
                one, tokens = answer(engines[name], asked[number % len(asked)], settings.max_tokens, load, start)
                phases[load.name, name].append(one)
                texts.append(tokens)
                same[load.name] &= tokens == texts[0]
    return [_row(load.name, phases, planned[0].name) | {"identical": same[load.name]} for load in planned]


def _row(load: str, phases: Mapping[tuple[str, str], Sequence[Phases]], undisturbed: str) -> dict[str, Any]:
    rates = {
        name: {part: median(getattr(one, part) for one in of) for part in ("before", "under", "after")}
        for (under, name), of in phases.items() if under == load
    }  # fmt: skip
    auto, plain, alone = phases[load, "auto"], phases[load, "ar"], phases[undisturbed, "auto"]
    under = [one.under / other.under for one, other in zip(auto, plain, strict=True)]
    return {
        "load": load, "rates": rates, "under_load": median(under), "least_under_load": min(under),
        # Thirds of a text are not equally easy.
        "recovered": median(one.after / other.after for one, other in zip(auto, alone, strict=True)),
    }  # fmt: skip
