"""What speculation gains while something else uses the machine: the lab of the latency law, with a load beside it.

Under each load every prompt is decoded plainly and with Mirror, in turn. A load is a process of its own, which ends
with its measurement, however that ends.
"""

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from mirror_mlx import blas
from mirror_mlx.bench import law, pairs, prompts
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.figures import Sample, summarise
from mirror_mlx.bench.lab import Cores, Others, Pace, PacedDraft
from mirror_mlx.bench.peers import view
from mirror_mlx.engine import Engine
from mirror_mlx.errors import DraftError, MirrorError
from mirror_mlx.sampling import Sampling

Report = Callable[[int, str], None]
_READY = 30.0  # seconds until a load has to be at work
_MIB = 1 << 20
_BLOCK = 256  # MiB copied by the load on the memory bus, at least

_PROGRAM = """\
import os, sys
kind, parent, mib, *cores = sys.argv[1:]
if cores:
    os.sched_setaffinity(0, {int(core) for core in cores})
if kind == "memory":
    ours, theirs = bytearray(int(mib) << 20), bytearray(b"x") * (int(mib) << 20)
said = False
while os.getppid() == int(parent):
    if kind == "memory":
        ours[:] = theirs
    else:
        for _ in range(200_000):
            pass
    if not said:
        said = os.write(1, b".")
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Something else that uses the machine.

    kind   "none", "spin" (one core, all the time) or "memory" (copies of more than any cache holds)
    cores  where it may run; none named: anywhere
    mib    what a copy takes
    """

    name: str
    kind: Literal["none", "spin", "memory"] = "none"
    cores: tuple[int, ...] = ()
    mib: int = 0


Start = Callable[[Load], AbstractContextManager[Any]]
"""Keeps a load at work while its context is open."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Raises UsageError for what is out of range.

    params    parameters of the inflated target; 0: as it is
    pass_ms   how long each of the draft's passes takes; 0: as long as it does
    prompts   a file (see `bench.prompts.read`); None: problems made from the seed
    held_out  not all of the file but this share from its end; 0: all
    limit     at most so many of them; max_tokens: of each answer
    rounds    how often each is decoded under each load, plainly and with Mirror
    """

    model: str = "demo"
    draft_model: str | None = None
    params: int = 160_000_000
    pass_ms: float = 10.0
    prompts: str | None = None
    held_out: float = 0.0
    limit: int = 4
    max_tokens: int = 64
    rounds: int = 2
    num_draft_tokens: int = 7
    kappa: int = 8
    max_roots: int = 24
    exit_layer: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1e12, limit=1, max_tokens=1, rounds=1)
        shared = {name: value for name, value in asdict(self).items() if name in law.Settings.__dataclass_fields__}
        law.Settings(**shared)


def loads(cores: Cores) -> list[Load]:
    """None; what competes with the target, with the draft, and with both for memory; none again."""
    if cores.target is None or cores.draft is None:
        spinning = [Load("one core", "spin")]
        free: tuple[int, ...] = ()
    else:
        names = (("target's core", cores.target), ("draft's core", cores.draft))
        spinning = [Load(name, "spin", (core,)) for name, core in names]
        usable = os.sched_getaffinity(0)
        # A child starts on its parent's cores, and those are one while the target decodes: all are named.
        free = tuple(sorted(usable - {cores.target, cores.draft} or usable))
    return [Load("none"), *spinning, Load("memory bus", "memory", free, _block()), Load("none again")]


def _block() -> int:
    """MiB: a multiple of the last cache, where the system tells its size."""
    known = getattr(os, "sysconf_names", {})
    cache = os.sysconf("SC_LEVEL3_CACHE_SIZE") if "SC_LEVEL3_CACHE_SIZE" in known else 0
    return int(min(1024, max(_BLOCK, 4 * cache // _MIB)))


@contextmanager
def started(load: Load) -> Iterator[subprocess.Popen[bytes] | None]:
    """The load at work, in a process that ends with this context, and by itself should this program be killed.

    Raises MirrorError where it does not start, or did not last.
    """
    if load.kind == "none":
        yield None
        return
    words = [load.kind, os.getpid(), load.mib, *load.cores]
    # A session of its own: Ctrl-C is ours, and we end it.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, words)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _READY)
        if not ready or not process.stdout.read(1):
            memory = f": are {2 * load.mib} MiB of memory free?" if load.kind == "memory" else ""
            raise MirrorError(f"the load on the {load.name} did not start{memory}")
        yield process
        if process.poll() is not None:
            raise MirrorError(f"the load on the {load.name} ended by itself: measure again")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _Tally:
    """What was measured under one load."""

    def __init__(self) -> None:
        self.sample = Sample()
        self.identical = True
        self._work = {"plain": (0, 0.0), "mirror": (0, 0.0)}
        self._rates: dict[str, list[float]] = {"plain": [], "mirror": []}

    def add(self, way: str, engine: Engine, length: int) -> None:
        """Take in an answer. Its first token is the prompt's doing, and counts neither as a token nor in seconds."""
        tokens, rate = engine.stats.tokens - 1, engine.stats.generation_tps
        if rate > 0:
            before, seconds = self._work[way]
            self._work[way] = before + tokens, seconds + tokens / rate
        self._rates[way].append(rate)
        if way == "mirror":
            self.sample.add(engine.trace, length)

    def figures(self) -> dict[str, Any]:
        plain, mirror = (tokens / seconds if seconds else 0.0 for tokens, seconds in self._work.values())
        pairs = [fast / slow for slow, fast in zip(*self._rates.values(), strict=True) if slow > 0]
        found = summarise(self.sample, [])
        return {
            "plain_tokens_per_second": plain,
            "tokens_per_second": mirror,
            "speed": mirror / plain if plain else 0.0,
            "speed_min_max": [min(pairs), max(pairs)] if pairs else [],
            "step_ms": found["step_ms"],
            "verify_ms": found["beside_draft_verify_ms"],
            "identical": self.identical,
            **{name: found[name] for name in ("draft_ms", "pass_ms", "hit_rate", "hidden_share", "tokens_per_step")},
            "steps": found["steps"],
        }


def measure(settings: Settings, report: Report = lambda done, what: None, start: Start | None = None) -> dict[str, Any]:
    """`loads`: a row of figures for each, in the order measured; `setup`: what it was measured with.

    plain_tokens_per_second, tokens_per_second   all tokens ÷ all seconds, without prompts: plain decoding, Mirror
    speed           the second ÷ the first; speed_min_max: of single answers
    step_ms, verify_ms, draft_ms, pass_ms, hit_rate, hidden_share   Mirror's, as `figures.summarise`; verify_ms is
                    measured beside the draft
    identical       whether all tokens were those of plain decoding without a load
    load_cores      how much of the machine others took: the load, and what else ran; None where that is unknown
    """
    blas.set_threads(1)
    report(0, "loading")
    cores = Cores()
    planned = loads(cores)  # while this thread may still use every core
    pair = pairs.load(settings.model, settings.draft_model)
    model, tokenizer, draft = pair.model, pair.tokenizer, pair.draft
    texts = prompts.asked(settings.prompts, settings.limit, settings.held_out, settings.seed)
    asked = [prompts.tokens(tokenizer, text) for text in texts]
    with cores.for_target():
        params = pair.inflate(settings.params)
        exit_layer = settings.exit_layer or pairs.deepest_exit(pair, settings.num_draft_tokens, settings.pass_ms)
        with (
            Engine(view(model), tokenizer, mode="ar") as plain,
            Engine(
                model, tokenizer, PacedDraft(draft, Pace(settings.pass_ms / 1e3)), mode="mirror", exit_layer=exit_layer,
                draft_work=cores.for_draft, tap=pair.adapter, draft_timeout=30.0,
                **{name: getattr(settings, name) for name in ("num_draft_tokens", "kappa", "max_roots")},
            ) as mirror,
        ):  # fmt: skip
            rows = _rows({"plain": plain, "mirror": mirror}, asked, planned, settings, report, start or started)
    setup = asdict(settings) | {
        "model": Path(settings.model).name, "params": params, "asked": len(asked), "exit_layer": exit_layer,
        "cores": str(cores), "device": str(mx.default_device()), "copied_mib": max(load.mib for load in planned),
    }  # fmt: skip
    setup |= {name: Path(setup[name]).name for name in ("draft_model", "prompts") if setup[name] is not None}
    return {"setup": setup, "loads": rows}


def _rows(
    engines: dict[str, Engine], asked: Sequence[list[int]], planned: Sequence[Load], settings: Settings,
    report: Report, start: Start,
) -> list[dict[str, Any]]:  # fmt: skip
    for engine in engines.values():  # a first answer warms up both devices
        _answer(engine, asked[0], min(24, settings.max_tokens))
    wanted: dict[int, list[int]] = {}
    rows, done = [], 0
    for load in planned:
        tally = _Tally()
        with start(load):
            others = Others()
            for number in range(settings.rounds * len(asked)):
                which = number % len(asked)
                # Who begins changes, so that a load that comes and goes favours nobody.
                for way in sorted(engines, reverse=bool((number + number // len(asked)) % 2)):
                    report(done, f"{load.name}: {way}")
                    said = _answer(engines[way], asked[which], settings.max_tokens)
                    tally.identical &= said == wanted.setdefault(which, said)
                    tally.add(way, engines[way], settings.num_draft_tokens)
                    done += 1
            taken = others.cores()
        rows.append({"load": load.name, "kind": load.kind} | tally.figures() | {"load_cores": taken})
    report(done, "done")
    return rows


def _answer(engine: Engine, prompt: list[int], limit: int) -> list[int]:
    tokens = [response.token for response in engine.stream(prompt, limit, Sampling())]
    if engine.trace.fault is not None:
        raise DraftError(f"{engine.trace.fault}: the draft must last for this measurement")
    return tokens
