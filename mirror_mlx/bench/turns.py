"""Engines that decode the same prompts in turn, in one process, on views of the same weights: what is compared is
compared within a second or two.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from math import inf, sqrt
from statistics import fmean, median, variance
from typing import Any

import mlx.core as mx

from mirror_mlx.bench import pairs, prompts
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.lab import Cores, Kept, Pace, PacedDraft, PacedTarget
from mirror_mlx.bench.peers import view
from mirror_mlx.draft import Draft
from mirror_mlx.engine import Engine
from mirror_mlx.sampling import Sampling
from mirror_mlx.target.submission import for_device
from mirror_mlx.trace import StepTrace
from mirror_mlx.tuning.costs import Costs

Report = Callable[[int, str], None]
LEAST_S = 30.0
"""Engines are compared for so many seconds at least: an answer of half a second says little on a machine with
neighbours."""


@dataclass(frozen=True, slots=True)
class Until:
    """How well it is to be known how many times as fast as others an engine is.

    precise   the standard error aimed at; most: the seconds that may take
    bar       a ratio; None: none
    doubtful  the seconds that it may take while that is within two standard errors, so that the engine may be above it
              as well as below
    """

    precise: float = 0.015
    most: float = 60.0
    bar: float | None = None
    doubtful: float = 0.0

    def longer(self, times: float) -> "Until":
        """So many times as long, and as well known."""
        return replace(self, precise=self.precise / times, most=self.most * times, doubtful=self.doubtful * times)


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Raises UsageError for what is out of range.

    params   of the inflated target; 0: as it is
    target_ms  how long each of the target's forwards takes (see `lab.PacedTarget`); 0: as long as it does
    pass_ms  how long each of the draft's passes takes; 0: as long as it does
    scale    a sweep's set times are so many times as long
    longer   so many times as long is compared what is close to something else
    prompts  a file (see `bench.prompts.read`); None: problems made from the seed
    limit    at most so many of them; max_tokens: of each answer; rounds: how often each is decoded
    """

    model: str = "demo"
    draft_model: str | None = None
    params: int = 160_000_000
    target_ms: float = 0.0
    pass_ms: float = 10.0
    scale: float = 1.0
    longer: float = 1.0
    temp: float = 0.0
    prompts: str | None = None
    held_out: float = 0.0
    limit: int = 4
    max_tokens: int = 128
    rounds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1e12, limit=1, max_tokens=1, rounds=1, params=0, target_ms=0, pass_ms=0, temp=0)
        at_least(self, 1e12, scale=0.01, longer=0.01)
        prompts.check_share(self.held_out)


class Lab:
    """The pair on its cores, and engines on views of it.

    mixed  prompts of both kinds, in turn
    more   beside the settings' `limit`, so many prompts that are asked later; where there are no more, the same
    draft_as  what the pair's draft is made

    asked  all prompts, as tokens; first: which of them those are that `limit` says
    kept   how often the target's forwards take their set time; passes_kept: the draft's passes theirs
    """

    def __init__(
        self, settings: Settings, mixed: bool = False, more: int = 0, draft_as: Callable[[Draft], Draft] | None = None
    ) -> None:
        self.settings, self._as = settings, draft_as
        self.cores = Cores()
        self.kept, self.passes_kept = Kept(), Kept()
        self.pair = pairs.load(settings.model, settings.draft_model)
        count = settings.limit + more
        texts = prompts.asked(settings.prompts, count, settings.held_out, settings.seed)
        if mixed and settings.prompts is not None:
            both = zip(texts, prompts.made(settings.seed, count), strict=False)
            texts = [text for pair in both for text in pair][:count]
        self.asked = [prompts.tokens(self.pair.tokenizer, text) for text in texts]
        self.first = range(len(self.asked))[: settings.limit]
        self._later = range(len(self.asked))[settings.limit :] or self.first
        self.params = self.pair.inflate(settings.params) if settings.params else 0

    def round(self, number: int) -> Sequence[int]:
        """As many of the others, none of which was in a round before, until there are no more."""
        size, later = len(self.first), self._later
        return [later[(number * size + place) % len(later)] for place in range(size)]

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.settings.temp, seed=self.settings.seed)

    def engine(self, draft: Draft | None, **options: Any) -> Engine:
        pair, made = self.pair, for_device()
        if self.settings.target_ms:
            made = PacedTarget(made, self.settings.target_ms / 1e3, len(pair.model.layers), self.kept)
        return Engine(
            view(pair.model), pair.tokenizer, draft, draft_work=self.cores.for_draft, tap=pair.adapter, submission=made,
            **options,
        )  # fmt: skip

    def draft_for(self, options: Mapping[str, Any]) -> Draft | None:
        return None if options["mode"] == "ar" else self.draft()

    def costs(self, **options: Any) -> Costs:
        """What calibration finds now."""
        with self.engine(self.draft(), mode="auto", **options) as engine:
            engine.calibrate(sampling=self.sampling)
            return engine.calibration[0].costs

    def draft(self) -> Draft:
        """The pair's, paced, on weights of its own: each engine closes its draft."""
        found = pairs.load(self.settings.model, self.settings.draft_model).draft
        paced = PacedDraft(found, Pace(self.settings.pass_ms / 1e3, self.passes_kept))
        return self._as(paced) if self._as else paced


@dataclass(frozen=True, slots=True)
class Answer:
    tokens: int
    seconds: float
    text: tuple[int, ...]
    prompt: int = 0  # which one
    decoding: float = 0.0  # seconds from the end of the first step to the beginning of the last but one
    steps: Sequence[StepTrace] = ()
    setting: str = ""  # that had been decided when it ended

    @property
    def middle(self) -> Sequence[StepTrace]:
        """The steps of those seconds: first windows hold less often; the last one is cut, and soon there."""
        return self.steps[1:-2]


def warm(engines: Iterable[Engine], lab: Lab) -> None:
    """The first prompt, once."""
    for engine in engines:
        answered(engine, lab.asked[0], lab)


def in_turn(
    engines: Mapping[str, Engine],
    lab: Lab,
    rounds: int,
    report: Callable[[int, str], None],
    between: Callable[[], object] = lambda: None,
    against: str | None = None,
    until: Until = Until(),
    others: bool = False,
) -> dict[str, list[Answer]]:
    """Every prompt by every engine, round after round; who begins changes.

    between  done before each prompt
    against  there are more rounds `until` it is known how that one compares with the others, `longer` as the lab's
             settings say
    others   each round has other prompts than the first ones, and than the rounds before, until there are no more; what
             is known is known of prompts of the kind then, see `spread`
    """
    began, until = time.perf_counter(), until.longer(lab.settings.longer)
    found: dict[str, list[Answer]] = {name: [] for name in engines}
    done, names, error = 0, list(engines), spread if others else uncertainty
    for number in count():
        seconds = time.perf_counter() - began
        if number >= rounds:
            if against is None:
                break
            beside = [of for name, of in found.items() if name != against]
            known = [(times_as_fast(found[against], of), error(found[against], of)) for of in beside]
            if _known(known, seconds, seconds / number, until):
                break
        which = lab.round(number) if others else lab.first
        for place, prompt in enumerate(which):
            between()
            turn = (number * (len(which) + 1) + place) % len(names)
            for name in [*names[turn:], *names[:turn]]:
                report(done, name)
                found[name].append(replace(answered(engines[name], lab.asked[prompt], lab), prompt=prompt))
                done += 1
    return found


def answered(engine: Engine, prompt: list[int], lab: Lab) -> Answer:
    began = time.perf_counter()
    text = tuple(r.token for r in engine.stream(prompt, lab.settings.max_tokens, lab.sampling))
    ended, steps = time.perf_counter(), tuple(engine.trace.steps)
    verified = sorted(span.start for span in engine.trace.spans if span.name == "verify" and span.lane == "target")
    decoding = (verified[-2] - verified[1]) / 1e9 if len(verified) > 3 else 0.0
    return Answer(len(text), ended - began, text, decoding=decoding, steps=steps, setting=engine.stats.setting)


def rate(of: Sequence[Answer]) -> float:
    """Tokens a second, with the median of the times that a prompt has been decoded in."""
    times: defaultdict[int, list[Answer]] = defaultdict(list)
    for answer in of:
        times[answer.prompt].append(answer)
    usual = [median(answer.seconds for answer in answers) for answers in times.values()]
    return sum(answers[0].tokens for answers in times.values()) / sum(usual)


def times_as_fast(of: Sequence[Answer], others: Sequence[Answer]) -> float:
    """Tokens a second ÷ the others'. Of each prompt it is the mean over answers that both gave one soon after the
    other, as neighbours' load has changed little then, without the quarter at either end."""
    found = _by_prompt(of, others)
    theirs = sum(usual for usual, _ in found)
    return theirs / sum(usual / _middle(ratios) for usual, ratios in found)


def uncertainty(of: Sequence[Answer], others: Sequence[Answer]) -> float | None:
    """The standard error of that, or somewhat more; None: no prompt has been answered twice."""
    found = _by_prompt(of, others)
    twice = [ratios for _, ratios in found if len(ratios) > 1]
    if not twice:
        return None
    within = sum((len(ratios) - 1) * variance(ratios) for ratios in twice) / sum(len(ratios) - 1 for ratios in twice)
    whole = sum(usual for usual, _ in found)
    return sqrt(sum((usual / whole) ** 2 * within / len(ratios) for usual, ratios in found))


def spread(of: Sequence[Answer], others: Sequence[Answer]) -> float | None:
    """The standard error of `times_as_fast` where other prompts of the kind are asked; None: there is one prompt."""
    found = [(usual, usual / _middle(ratios)) for usual, ratios in _by_prompt(of, others)]
    if len(found) < 2:
        return None
    times = times_as_fast(of, others)
    off = sum((theirs - times * ours) ** 2 for theirs, ours in found)
    return sqrt(off * len(found) / (len(found) - 1)) / sum(ours for _, ours in found)


def _known(found: Sequence[tuple[float, float | None]], seconds: float, another: float, until: Until) -> bool:
    """found: times as fast as each of the others, and its standard error; another: what one more round takes, s."""
    most = max(until.most, until.doubtful) if _doubtful(found, until.bar) else until.most
    if seconds + another > most:
        return True
    if seconds < LEAST_S:
        return False
    return all(error is not None and error <= until.precise for _, error in found)


def _doubtful(found: Iterable[tuple[float, float | None]], bar: float | None) -> bool:
    """Whether the one may be above the bar beside each of the others, and below it beside some."""
    if bar is None:
        return False
    off = [(times - bar, inf if error is None else 2 * error) for times, error in found]
    return all(more > -known for more, known in off) and any(more < known for more, known in off)


def _by_prompt(of: Sequence[Answer], others: Sequence[Answer]) -> list[tuple[float, list[float]]]:
    """Of each: what the others usually took, s, and what they took ÷ what these did."""
    found: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for one, other in zip(of, others, strict=True):
        found[one.prompt].append((other.seconds, other.seconds / one.seconds))
    return [(median(s for s, _ in pairs), [ratio for _, ratio in pairs]) for pairs in found.values()]


def _middle(ratios: Sequence[float]) -> float:
    quarter = len(ratios) // 4
    return fmean(sorted(ratios)[quarter : len(ratios) - quarter])


def identical(*found: Mapping[str, Sequence[Answer]]) -> bool:
    """Whether each prompt always had the same answer."""
    texts = {(answer.prompt, answer.text) for one in found for of in one.values() for answer in of}
    return len(texts) == len({prompt for prompt, _ in texts})


def setup(settings: Settings) -> dict[str, Any]:
    return asdict(settings) | {"device": str(mx.default_device()), "cores": str(Cores())}


def told(report: Report, done: int, what: str) -> Callable[[int, str], None]:
    return lambda more, name: report(done + more, f"{what}: {name}")
