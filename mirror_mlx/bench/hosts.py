"""The same draft on several hosts: does it propose the same, and how fast is a pair with it?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from mirror_mlx import hub, loading
from mirror_mlx.bench import prompts
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.lab import Others
from mirror_mlx.draft.protocol import Draft, width_of
from mirror_mlx.engine import Engine
from mirror_mlx.errors import DraftError, ModelError, UsageError
from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.sampling import Sampling

Report = Callable[[int, str], None]
BASE = "mlx"
"""The host that the others are compared with."""


@dataclass(frozen=True)
class Settings:
    """What to compare.

    hosts   besides `BASE`, as `--draft-host` names them
    limit   prompts; max_tokens: of each answer
    rounds  how often each host decodes each prompt, in turn
    """

    model: str = "demo"
    draft_model: str | None = None
    hosts: tuple[str, ...] = ("reference",)
    temps: tuple[float, ...] = (0.0, 1.0)
    prompts: str | None = None
    held_out: float = 0.0
    limit: int = 8
    max_tokens: int = 96
    rounds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, limit=1, max_tokens=1, rounds=1)


class Twin:
    """A draft that has another one do the same, and counts the tokens that both propose.

    The text, the glued rows and the roots are the first one's for both; each goes on from its own proposals, so that
    behind a token that differs the rest of its window mostly does too.
    """

    def __init__(self, draft: Draft, other: Draft) -> None:
        self._draft, self._other = draft, other
        self.max_roots = draft.max_roots
        self.same = self.proposed = 0

    @property
    def width(self) -> int | None:
        return min((w for w in (width_of(self._draft), width_of(self._other)) if w is not None), default=None)

    def begin(self, sampling: Sampling) -> None:
        self._draft.begin(sampling)
        self._other.begin(sampling)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._draft.prefill(tokens)
        self._other.prefill(tokens)

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        self._other.glue(tokens, candidates)
        return self._draft.glue(tokens, candidates)

    def expand(self, roots: Sequence[Root]) -> None:
        self._draft.expand(roots)
        self._other.expand(roots)

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        found, other = self._draft.advance(keys), self._other.advance(keys)
        for key, tokens in found.items():
            self.proposed += len(tokens)
            self.same += sum(a == b for a, b in zip(tokens, other.get(key, ()), strict=False))
        return found

    def commit(self, rows: int) -> None:
        self._draft.commit(rows)
        self._other.commit(rows)

    def rewind(self, length: int) -> None:
        self._draft.rewind(length)
        self._other.rewind(length)

    def close(self) -> None:
        self._draft.close()
        self._other.close()


def measure(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """Figures of every host and temperature. `identical` compares with plain decoding, `same_proposals` with `BASE`,
    `speed` is its tokens/s ÷ those of `BASE`, both medians over all answers, taken in turn."""
    others, rows, done = Others(), [], 0
    names = (BASE, *settings.hosts)
    with loading.load(settings.model, settings.draft_model, mode="mirror", draft_host=BASE) as engine:
        model, tokenizer, adapter = engine.target.model, engine.tokenizer, engine.target.adapter
        options = {
            name: getattr(engine.options, name)
            for name in ("num_draft_tokens", "kappa", "max_roots", "exit_layer", "predictor")
        } | {"draft_timeout": 30.0}  # fmt: skip
        if engine.draft is None:
            raise UsageError(f"{settings.model} has no draft: name one with --draft-model")
    folder = _draft_folder(settings)
    texts = prompts.asked(settings.prompts, settings.limit, settings.held_out, settings.seed)
    asked = [prompts.tokens(tokenizer, text) for text in texts]

    def made(draft: Draft, mode: str) -> Engine:
        return Engine(model, tokenizer, draft, mode=mode, draft_work=loading.own_stream, tap=adapter, **options)

    def drafted(host: str) -> Draft:
        return loading.load_draft(folder, model, tokenizer, host=host)

    for temperature in settings.temps:
        sampling = Sampling(temperature=temperature, seed=settings.seed)
        with Engine(model, tokenizer, mode="ar") as plain:
            wanted = [[r.token for r in plain.stream(text, settings.max_tokens, sampling)] for text in asked]
        shares = {}
        for host in settings.hosts:
            twin = Twin(drafted(BASE), drafted(host))
            with made(twin, "mirror") as engine:
                for text in asked:
                    for _ in engine.stream(text, settings.max_tokens, sampling):
                        pass
                    done += 1
                    report(done, f"{host}, proposals")
            shares[host] = twin.same / max(twin.proposed, 1), twin.proposed
        engines = {name: made(drafted(name), "mirror") for name in names}
        speeds: dict[str, list[float]] = {name: [] for name in names}
        steps: dict[str, list[float]] = {name: [] for name in names}
        drafting: dict[str, list[float]] = {name: [] for name in names}
        identical = dict.fromkeys(names, True)
        try:
            for name in names:  # a first answer compiles kernels
                for _ in engines[name].stream(asked[0], 16, sampling):
                    pass
            for _ in range(settings.rounds):
                for text, expected in zip(asked, wanted, strict=True):
                    for name in names:
                        said = [r.token for r in engines[name].stream(text, settings.max_tokens, sampling)]
                        stats = engines[name].stats
                        identical[name] &= said == expected and stats.mode == "mirror"
                        speeds[name].append(stats.generation_tps)
                        steps[name].append(stats.tokens_per_step)
                        drafting[name].append(stats.draft_ms)
                        done += 1
                        report(done, f"{name}, speed")
        finally:
            for engine in engines.values():
                engine.close()
        for name in names:
            share, count = shares.get(name, (None, None))
            rows.append({
                "host": name, "temperature": temperature, "same_proposals": share, "proposals": count,
                "identical": identical[name], "tokens_per_second": median(speeds[name]),
                "speed": median(speeds[name]) / median(speeds[BASE]), "tokens_per_step": median(steps[name]),
                "draft_ms": median(drafting[name]),
            })  # fmt: skip
    setup = {
        "model": Path(settings.model).name, "prompts": len(asked), "rounds": settings.rounds,
        "max_tokens": settings.max_tokens, "device": str(mx.default_device()), "other_programs_cores": others.cores(),
    }  # fmt: skip
    return {"setup": setup, "hosts": rows}


def _draft_folder(settings: Settings) -> Path:
    if settings.draft_model is not None:
        return loading.DEMO / "draft" if settings.draft_model == "demo" else hub.find(settings.draft_model, DraftError)
    return (loading.DEMO if settings.model == "demo" else hub.find(settings.model, ModelError)) / "draft"
