"""Decoding held-out prompts in turns, target and draft on one thread, with every tap read: what `hits` counts.

The text is the runtime's own, and so is every window but one kind: where the runtime would hand over a window before
it is finished, here it is always finished. The rates are those of a draft that is never late.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import mlx.core as mx

from mirror_mlx import loading
from mirror_mlx.bench import files
from mirror_mlx.bench import prompts as asking
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.hits import DEPTH, KAPPAS, PER_ROW, PER_STEP, Record, Tally, Tap, best_exit, used
from mirror_mlx.draft import Draft
from mirror_mlx.engine import Engine
from mirror_mlx.errors import DraftError, MirrorError, ModelError, UsageError
from mirror_mlx.messages import Outcome, Root
from mirror_mlx.options import Options
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.speculation import SpeculationCache
from mirror_mlx.target import Target
from mirror_mlx.verify import shorten, verify

DECODING = ("num_draft_tokens", "kappa", "max_roots")
_NUMBERS = re.compile(r"\[[^\[\]{}\"]*\]")
Report = Callable[[int, str], None]
"""Called as (requests done, what is being done)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Raises UsageError for what is out of range.

    exit_layers  None: a quarter, half and three quarters of the target's layers
    temps        each prompt is decoded at each of these temperatures
    prompts      a file (see `bench.prompts.read`); None: problems made from the seed
    held_out     not all of the file but this share from its end; 0: all
    limit        at most so many prompts
    num_draft_tokens, kappa, max_roots   None: as the pair is run
    """

    model: str = "demo"
    draft_model: str | None = None
    exit_layers: tuple[int, ...] | None = None
    temps: tuple[float, ...] = (0.0, 1.0)
    prompts: str | None = None
    held_out: float = 0.0
    limit: int = 40
    max_tokens: int = 160
    seed: int = 0
    num_draft_tokens: int | None = None
    kappa: int | None = None
    max_roots: int | None = None

    def __post_init__(self) -> None:
        at_least(self, limit=1, max_tokens=1)
        for temperature in self.temps:
            Sampling(temperature=temperature, seed=self.seed)
        Options.of(self.decoding())

    def decoding(self) -> dict[str, Any]:
        """The options that are set."""
        return {name: value for name in DECODING if (value := getattr(self, name)) is not None}


def measure(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """Every table, as one JSON object gives them, and the exit layer they speak for.

    setup        what was measured: settings, layers, which of them have a trained tap, or why that cannot be used
    kappas, per_row, per_step    what the lists in the tables go by
    temperatures [{temperature, …}], each with the tables of `hits.Tally.tables`
    exit_layer   the one with the highest hit rate of the hybrid, as the pair is run, over all temperatures
    """
    report(0, "loading")
    ask = asking.asked(settings.prompts, settings.limit, settings.held_out, settings.seed)
    with loading.load(settings.model, settings.draft_model, mode="mirror", **settings.decoding()) as engine:
        draft = _usable(engine, settings)
        options, target = engine.options, engine.target
        layers = _exit_layers(settings.exit_layers, target.num_layers)
        trained = [] if target.adapter is None else [n for n in target.adapter.layers if n in layers]
        taps: list[Tap] = [(n, "plain") for n in layers] + [(n, "trained") for n in trained]
        max_roots = min(options.max_roots, draft.max_roots or options.max_roots)
        requests = [asking.tokens(engine.tokenizer, prompt) for prompt in ask]
        limits = [
            min(settings.max_tokens, asking.fitting(request, target.context_length, number))
            for number, request in enumerate(requests, start=1)
        ]
        found, done = [], 0
        for temperature in settings.temps:
            tally = Tally(sorted(taps), kappa=options.kappa, max_roots=max_roots)
            sampling = Sampling(temperature=temperature, seed=settings.seed)
            for request, limit in zip(requests, limits, strict=True):
                report(done, f"temperature {temperature:g}")
                for record in records(engine, request, limit, sampling, taps, 2 * max(DEPTH, options.kappa) + 1):
                    tally.add(record)
                done += 1
            if not tally.steps:
                raise ModelError("no step prepared a window: the answers are too short to measure anything")
            found.append({"temperature": temperature, **tally.tables()})
        report(done, "done")
    return {
        "setup": asdict(settings)
        | {"layers": target.num_layers, "exit_layers": layers, "trained": trained, "requests": len(requests)}
        | {"num_draft_tokens": options.length, "kappa": options.kappa, "max_roots": max_roots}
        | {"adapter_refusal": target.adapter_refusal},
        "kappas": KAPPAS,
        "per_row": PER_ROW,
        "per_step": PER_STEP,
        "temperatures": found,
        "exit_layer": best_exit(as_run(found)),
    }


def as_run(temperatures: Sequence[dict[str, Any]]) -> dict[int, float]:
    """The hybrid's hit rate at each exit layer as the pair is run: the mean over the temperatures."""
    rates: dict[int, list[float]] = {}
    for tables in temperatures:
        for tap in used(tables):
            rates.setdefault(tap["exit_layer"], []).append(tap["hybrid"]["as_run"]["hit_rate"])
    return {layer: fmean(of) for layer, of in rates.items()}


def records(
    engine: Engine, prompt: Sequence[int], limit: int, sampling: Sampling, taps: Collection[Tap], depth: int
) -> Iterator[Record]:
    """Decode one request; one record for each step that prepares a window. The steps are those of
    `mirror_mlx.decoding`, but that nothing runs beside anything."""
    target, draft = engine.target, engine.draft
    assert draft is not None
    stops = set(engine.tokenizer.eos_token_ids) if engine.tokenizer else set()
    tokens, end = list(prompt), len(prompt) + limit
    window: tuple[int, ...] = ()
    with _named():
        draft.begin(sampling)
        draft.rewind(0)
        if len(prompt) > 2:
            draft.prefill(tokens[:-2])
    target.prefill(tokens[:-1], Sampler(sampling))
    if len(prompt) > 1:
        with _named():
            draft.glue([tokens[-2]], 0)
            length = _room(target, engine.options.length, limit)
            window = _rollout(draft, Outcome(0, tokens[-1]), length, target.vocab_size)
            draft.commit(1)
    while len(tokens) < end:
        target.begin(tokens[-1], window, tokens, tap=False)
        with _named():
            said = draft.glue([tokens[-1], *window], depth)
        outcome = shorten(verify(window, target.finish()), window, stops, end - len(tokens))
        seen = {(layer, lens): _read(target, layer, lens == "trained", depth) for layer, lens in taps}
        target.commit(outcome)
        tokens += [*window[: outcome.accepted], outcome.token]
        length, before = _room(target, engine.options.length, end - len(tokens)), window
        with _named():
            window = () if outcome.token in stops else _rollout(draft, outcome, length, target.vocab_size)
            draft.commit(outcome.accepted + 1)
        if outcome.token in stops:
            break
        if length > 0:
            yield Record(before, outcome, said, seen)
    mx.clear_cache()


def _read(target: Target, layer: int, trained: bool, depth: int) -> Any:
    return target.candidates(layer, depth, target.adapter if trained else None).read()


def _room(target: Target, longest: int, left: int) -> int:
    """How long the next window may be, where `left` tokens are still wanted: the target adds one to it."""
    room = target.room()
    return min(longest, left - 1) if room is None else min(longest, left - 1, room)


def _rollout(draft: Draft, outcome: Outcome, length: int, vocab_size: int) -> tuple[int, ...]:
    """The window for an outcome, under the rules of the runtime's cache."""
    if length < 1:
        return ()
    cache, key = SpeculationCache(length, vocab_size), outcome.key
    draft.expand((Root(*key),))
    cache.open(key)
    while cache.unfinished:
        cache.extend(key, draft.advance((key,)).get(key, ()))
    return cache.get(key) or ()


@contextmanager
def _named() -> Iterator[None]:
    """The runtime goes on without a draft that fails; a measurement of it cannot."""
    try:
        yield
    except MirrorError:
        raise
    except Exception as reason:
        detail = " ".join(f"{type(reason).__name__}: {reason}".split())
        raise DraftError(f"draft died: {detail}: the draft must last for this measurement") from reason


def _usable(engine: Engine, settings: Settings) -> Draft:
    """The draft, if both models can do what is measured here."""
    if engine.draft is None:
        raise DraftError(f"{settings.model} comes with no draft: give one with --draft-model")
    refusal = engine.target.window_refusal or engine.target.tap_refusal
    if refusal is not None:
        raise ModelError(f"there is nothing to measure on this model: {refusal}")
    return engine.draft


def _exit_layers(given: Sequence[int] | None, layers: int) -> list[int]:
    """Ascending, without repeats."""
    for layer in given or ():
        if not 1 <= layer < layers:
            raise UsageError(
                f"exit_layers has {layer}: this model has {layers} layers, so each must be in 1 … {layers - 1}"
            )
    return sorted(set(given or (max(1, layers * quarters // 4) for quarters in (1, 2, 3))))


def pair_file(model: str) -> Path:
    """Where a pair keeps what was found out about it. Raises UsageError where `model` is no pair on this disk."""
    folder = loading.DEMO if model == "demo" else Path(model).expanduser()
    if not (folder / "target").is_dir() or (folder / "config.json").exists():
        raise UsageError(f"write needs a pair, a folder that holds target and draft: {model} is none")
    return folder / "pair.json"


def _brief(value: Any) -> Any:
    """As it is kept: three decimals, and no miss rates, which the hit rates say."""
    if isinstance(value, dict):
        return {name: _brief(item) for name, item in value.items() if not str(name).startswith("miss_rate")}
    if isinstance(value, list | tuple):
        return [_brief(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def write(file: Path, found: dict[str, Any]) -> None:
    """Put the tables and the exit layer into a `pair.json`, keeping what else it says. The file is replaced at once.
    Raises MirrorError where it cannot be."""
    try:
        about = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        about["options"] = about.get("options", {}) | {"exit_layer": found["exit_layer"]}
        setup = {name: value for name, value in found["setup"].items() if name not in ("model", "draft_model")}
        if setup["prompts"] is not None:
            setup["prompts"] = Path(setup["prompts"]).name
        about["hits"] = _brief(found | {"setup": setup})
        text = json.dumps(about, indent=1, ensure_ascii=False)
        files.replace(file, _NUMBERS.sub(lambda list_: " ".join(list_[0].split()), text) + "\n")
    except (OSError, ValueError, AttributeError, TypeError) as reason:
        raise MirrorError(f"{file} cannot be written: {' '.join(str(reason).split())}") from None
