"""Runs methods on the same questions in strict alternation, and notes what each did.

Nothing here knows what a method is made of: tokens are counted, cut and timed by the same lines for all, so that none
can look good by the harness's doing.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from mirror_mlx.bench.lab import Others
from mirror_mlx.bench.spec_questions import Question, Texts
from mirror_mlx.errors import MirrorError
from mirror_mlx.sampling import Sampling
from mirror_mlx.verify import common

Record = dict[str, Any]
"""One answer of one method: a line of results.jsonl."""
Report = Callable[[int, int, str], None]
"""Called as (dialogues done, of how many, what is being done)."""
BASE = "plain"
WARMUP_TOKENS = 32  # at most, in each warm-up
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Account:
    """What only the method knows of its last answer.

    steps      tokens that each verification brought, its own one included; plain decoding has ones
    hits       steps whose outcome had been prepared for, of `predicted` steps; None where nothing is predicted
    mode       what decoded in the end, and why if that is not what was asked for
    where      ms spent in each part of the steps, all of them together; None where it is not known
    """

    steps: Sequence[int]
    hits: int | None = None
    predicted: int | None = None
    mode: str = ""
    reason: str = ""
    where: Mapping[str, float] | None = None


class Method(Protocol):
    """A way of decoding."""

    name: str
    own_noise: bool
    """Whether it samples with random numbers of its own, so that its tokens are others than plain decoding's."""

    def fresh(self) -> None:
        """A run begins: forget what earlier questions taught."""

    def empty(self, prompt: Sequence[int]) -> None:
        """Forget all cached tokens that this prompt begins with: everyone prefills all of it."""

    def stream(self, prompt: Sequence[int], limit: int, sampling: Sampling) -> Iterator[int]:
        """At most `limit` tokens after the prompt. A generator; it is closed at the end of the answer."""

    def account(self) -> Account:
        """Of the last answer, after its stream was closed. Waits until the device is idle."""

    def close(self) -> None:
        """Idempotent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. context: positions the target has; pause: seconds of rest before each answer."""

    questions: Sequence[Question]
    temps: Sequence[float]
    runs: int
    warmups: int
    max_tokens: int
    seed: int = 0
    context: int | None = None
    pause: float = 0.0

    def answers(self, methods: int) -> int:
        """How many dialogues there are to be had."""
        return len(self.temps) * self.runs * len(self.questions) * methods


class Log(Protocol):
    """Where dialogues go, and which are there already."""

    def has(self, temperature: float, run: int, question: str, method: str) -> bool: ...
    def add(self, records: Sequence[Record]) -> None: ...


@dataclass(slots=True)
class Timed:
    """An answer: its tokens, when each was there (ns), when it was asked for, and other programs' cores meanwhile."""

    began: int
    tokens: list[int] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    others: float | None = None


def order(methods: Sequence[T], turn: int) -> list[T]:
    """The order of a turn: rotated by one from pair to pair of turns, and backwards in the second turn of a pair, so
    that everyone is in the middle on average, and a machine that slows down slows down all.

    >>> [order("abc", turn) for turn in range(4)]
    [['a', 'b', 'c'], ['c', 'b', 'a'], ['b', 'c', 'a'], ['a', 'c', 'b']]
    """
    shift = turn // 2 % max(len(methods), 1)
    rotated = [*methods[shift:], *methods[:shift]]
    return rotated[::-1] if turn % 2 else rotated


def run(
    plan: Plan,
    methods: Sequence[Method],
    texts: Texts,
    log: Log,
    report: Report = lambda done, wanted, what: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> bool:
    """Ask everything that the log has not. False where Ctrl-C ended it; what was finished until then is in the log."""
    asker = _Asker(plan, texts, clock)
    done, wanted = 0, plan.answers(len(methods))
    gc.collect()
    gc.freeze()  # what is there stays: collecting between answers then takes no time
    try:
        for temperature in plan.temps:
            sampling = Sampling(temperature=temperature, seed=plan.seed)
            warm = False
            for number in range(plan.runs):
                for method in methods:
                    method.fresh()
                for i, question in enumerate(plan.questions):
                    for method in order(methods, number * len(plan.questions) + i):
                        if not log.has(temperature, number, question.id, method.name):
                            if not warm:
                                asker.warm_up(methods, sampling, partial(report, done, wanted))
                                warm = True
                            report(done, wanted, f"T {temperature:g}, run {number + 1}: {method.name}")
                            log.add(asker.dialogue(method, question, number, sampling))
                        done += 1
    except KeyboardInterrupt:
        return False
    finally:
        gc.unfreeze()
    report(done, wanted, "done")
    return True


class _Asker:
    def __init__(self, plan: Plan, texts: Texts, clock: Callable[[], int]) -> None:
        self._plan, self._texts, self._clock = plan, texts, clock
        self._plain: dict[tuple[float, str, int], list[int]] = {}

    def warm_up(self, methods: Sequence[Method], sampling: Sampling, report: Callable[[str], None]) -> None:
        """Every method begins the first answer, some times; then all of them forget it."""
        plan = self._plan
        prompt = self._texts.prompt(plan.questions[0], ())
        for method in methods:
            for _ in range(plan.warmups):
                report(f"T {sampling.temperature:g}, warm-up: {method.name}")
                self._timed(method, prompt, min(WARMUP_TOKENS, self._room(prompt)), sampling)
            method.fresh()

    def dialogue(self, method: Method, question: Question, number: int, sampling: Sampling) -> list[Record]:
        """All turns of a question, as far as the context reaches. Its own answers are quoted, as in Spec-Bench."""
        answers: list[str] = []
        records: list[Record] = []
        for turn in range(len(question.turns)):
            prompt = self._texts.prompt(question, answers)
            limit = self._room(prompt)
            if limit < 1:
                break
            timed, account = self._timed(method, prompt, limit, sampling)
            if sum(account.steps) != len(timed.tokens):
                raise MirrorError(
                    f"{method.name} accounts for {sum(account.steps)} tokens and gave {len(timed.tokens)}: "
                    "its figures cannot be trusted"
                )
            answers.append(self._texts.text(timed.tokens))
            own_noise = method.own_noise and sampling.temperature > 0
            key = sampling.temperature, question.id, turn
            records.append({
                "temperature": sampling.temperature, "run": number, "question": question.id,
                "category": question.category, "task": question.task, "turn": turn, "turns": len(question.turns),
                "method": method.name, "prompt_tokens": len(prompt), "prompt_hash": hashed(prompt),
                **self._figures(timed, account), "retokenised": self._texts.recount(answers[-1]),
                "own_noise": own_noise, "tokens_hash": hashed(timed.tokens),
                **self._compared(timed.tokens, own_noise, key, method.name),
            })  # fmt: skip
        return records

    def _room(self, prompt: Sequence[int]) -> int:
        context = self._plan.context
        return self._plan.max_tokens if context is None else min(self._plan.max_tokens, context - len(prompt))

    def _timed(self, method: Method, prompt: list[int], limit: int, sampling: Sampling) -> tuple[Timed, Account]:
        method.empty(prompt)
        time.sleep(self._plan.pause)
        gc.collect()  # nobody clears up after another
        others = Others()
        timed = Timed(self._clock())
        with closing(method.stream(prompt, limit, sampling)) as stream:  # type: ignore[type-var]
            for token in stream:
                timed.moments.append(self._clock())
                timed.tokens.append(int(token))
                if token in self._texts.stops or len(timed.tokens) == limit:
                    break
        timed.others = others.cores()
        if not timed.tokens:
            raise MirrorError(f"{method.name} gave no token")
        return timed, method.account()

    def _figures(self, timed: Timed, account: Account) -> Record:
        """Decoding alone begins when the first step's tokens are there: they do not count, however many they are."""
        return {
            "new_tokens": len(timed.tokens),
            "steps": len(account.steps),
            "accept_lengths": list(account.steps),
            "seconds": (timed.moments[-1] - timed.began) / 1e9,
            "first_seconds": (timed.moments[0] - timed.began) / 1e9,
            "decode_tokens": len(timed.tokens) - account.steps[0],
            "decode_seconds": (timed.moments[-1] - timed.moments[0]) / 1e9,
            "ended": timed.tokens[-1] in self._texts.stops,
            "hits": account.hits,
            "predicted": account.predicted,
            "mode": account.mode,
            "reason": account.reason,
            "where": None if account.where is None else dict(account.where),
            "others": timed.others,
        }

    def _compared(self, tokens: list[int], own_noise: bool, key: tuple[float, str, int], name: str) -> Record:
        """equal: whether these are plain decoding's tokens; None where that has yet to decode the turn, or draws other
        numbers. The figures compare hashes. differs_at: the first token that is another."""
        if name == BASE:
            self._plain.setdefault(key, tokens)
        plain = self._plain.get(key)
        if plain is None or own_noise:
            return {"equal": None, "differs_at": None}
        equal = tokens == plain
        return {"equal": equal, "differs_at": None if equal else common(tokens, plain)}


def hashed(tokens: Sequence[int]) -> str:
    """A short name for a sequence of tokens: 16 hexadecimal digits."""
    return blake2b(",".join(map(str, tokens)).encode(), digest_size=8).hexdigest()
