"""SpecBench for a pair: mlx-lm's own decoding and this runtime's methods, in one process and in strict alternation, on
the same target, questions, type and cores. Protocol and metrics are Spec-Bench's (github.com/hemingkx/Spec-Bench).
"""

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mirror_mlx import __version__, blas
from mirror_mlx.bench import prompts, spec_methods
from mirror_mlx.bench.checks import at_least
from mirror_mlx.bench.inflate import count_parameters
from mirror_mlx.bench.lab import Cores
from mirror_mlx.bench.spec_figures import summarise
from mirror_mlx.bench.spec_lab import DECODING, Folders, Lab, lab_of
from mirror_mlx.bench.spec_log import Results
from mirror_mlx.bench.spec_questions import ModelTexts, Question, fits, read
from mirror_mlx.bench.spec_run import WARMUP_TOKENS, Plan, Report, run
from mirror_mlx.errors import PromptError, UsageError
from mirror_mlx.limits import context_length
from mirror_mlx.options import Options
from mirror_mlx.sampling import Sampling

_REST = 0.02  # seconds before each answer, besides two draft passes: whatever an answer left running has ended


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Raises UsageError for what is out of range.

    draft_model, streaming_draft   None: the pair's own
    methods     see `spec_methods.recipe`; None: all of its table. Plain decoding always runs
    questions   a file; None: for the bundled pair the held-out part of GSM8K's training file, where that is found
                (`prompts.gsm8k`), else made problems
    held_out    not all of the file but this share from its end; 0: all
    limit       questions of each category; 0: all
    runs        how often every method answers everything
    warmups     answers begun before the first is measured, for each method and temperature
    params      inflate the target to so many parameters; 0: as it is
    pass_ms     how long each pass of a model draft takes; 0: as long as it does
    num_draft_tokens, kappa, max_roots, exit_layer   of this runtime's methods; None: the pair's own
    datastore   for retrieval
    out         a folder for the results: a second start goes on there
    """

    model: str = "demo"
    draft_model: str | None = None
    streaming_draft: str | None = None
    methods: tuple[str, ...] | None = None
    questions: str | None = None
    held_out: float = 0.0
    limit: int = 10
    temps: tuple[float, ...] = (0.0, 1.0)
    runs: int = 3
    warmups: int = 3
    max_tokens: int = 256
    seed: int = 0
    params: int = 0
    pass_ms: float = 0.0
    num_draft_tokens: int | None = None
    kappa: int | None = None
    max_roots: int | None = None
    exit_layer: int | None = None
    datastore: str | None = None
    out: str | None = None

    def __post_init__(self) -> None:
        at_least(self, 1e12, limit=0, runs=1, warmups=0, max_tokens=1, params=0, pass_ms=0)
        prompts.check_share(self.held_out)
        for temperature in self.temps:
            if self.temps.count(temperature) > 1:
                raise UsageError(f"temperature {temperature:g} is given twice: once will do")
            Sampling(temperature=temperature, seed=self.seed)
        Options.of(self.decoding())
        spec_methods.chosen(self.methods)

    def filled(self) -> "Settings":
        """With the questions that are asked where none are named."""
        if self.questions is not None or self.model != "demo" or (file := prompts.gsm8k()) is None:
            return self
        return replace(self, questions=file, held_out=self.held_out or prompts.HELD_OUT)

    def decoding(self) -> dict[str, Any]:
        """The engine's options that are set."""
        return {name: value for name in DECODING if (value := getattr(self, name)) is not None}


def measure(settings: Settings, report: Report = lambda done, wanted, what: None) -> dict[str, Any]:
    """Everything there is to say, as one JSON object gives it.

    setup         what was measured, on what
    left_out      methods with the reason, and how many questions were longer than the context
    temperatures  see `spec_figures.summarise`
    finished      False where Ctrl-C ended it; resumed: how often it had been stopped before
    """
    names = spec_methods.chosen(settings.methods)
    settings = settings.filled()
    asked = read(settings.questions, settings.limit, settings.seed, settings.held_out)
    blas.set_threads(1)
    cores = Cores()
    folders = Folders.of(settings.model, settings.draft_model, settings.streaming_draft)
    fixed = _fixed(settings, names, asked, folders, cores)
    results = Results(Path(settings.out).expanduser() if settings.out else None, fixed)
    try:
        report(0, 0, "loading")
        with cores.for_target():
            lab = lab_of(
                folders, settings.decoding(), cores, params=settings.params, pass_ms=settings.pass_ms,
                datastore=settings.datastore,
            )  # fmt: skip
            texts, context = ModelTexts(lab.tokenizer), context_length(lab.model)
            fitting = [question for question in asked if fits(question, texts, settings.max_tokens, context)]
            if not fitting:
                raise PromptError(
                    f"no question fits: all {len(asked)} are longer than the model's context of {context} tokens"
                )
            methods, left_out = spec_methods.make(names, lab)
            plan = Plan(
                fitting, settings.temps, settings.runs, settings.warmups, settings.max_tokens, settings.seed, context,
                pause=_REST + 2 * settings.pass_ms / 1e3,
            )  # fmt: skip
            try:
                finished = run(plan, methods, texts, results, report)
            finally:
                spec_methods.close(methods)
            return {
                "setup": fixed | _described(lab, fitting, settings),
                "left_out": {"methods": left_out, "questions": len(asked) - len(fitting)},
                "methods": {method.name: spec_methods.recipe(method.name).what for method in methods},
                "temperatures": summarise(results.records, [method.name for method in methods]),
                "finished": finished,
                "answers": {"had": results.dialogues, "wanted": plan.answers(len(methods))},
                "resumed": results.resumed,
            }
    finally:
        results.close()


def _fixed(
    settings: Settings, names: Sequence[str], asked: Sequence[Question], folders: Folders, cores: Cores
) -> dict[str, Any]:
    """What results must have in common to be put together."""
    own = {name: value for name, value in asdict(settings).items() if name not in ("out", "questions", "datastore")}
    return own | {
        "model": Path(settings.model).name,
        "draft_model": folders.ar and folders.ar.name + (", main stream" if folders.ar == folders.stream else ""),
        "streaming_draft": folders.stream.name if folders.stream else None,
        "methods": list(names), "temps": list(settings.temps),
        "questions": None if settings.questions is None else Path(settings.questions).name,
        "datastore": None if settings.datastore is None else _traits([Path(settings.datastore).expanduser()]),
        "questions_hash": _digest([asdict(question) for question in asked]),
        "weights_hash": _traits(
            file for folder in (folders.whole, folders.target, folders.ar, folders.stream) if folder
            for pattern in ("*.safetensors", "config.json", "pair.json") for file in sorted(folder.glob(pattern))
        ),
        "versions": {"mirror-mlx": __version__, "mlx": mx.__version__, "mlx-lm": version("mlx-lm")},
        "machine": f"{platform.machine()}, {mx.default_device()}, {cores}",
    }  # fmt: skip


def _traits(files: Iterable[Path]) -> str:
    """What tells files from others of the same name, without reading them."""
    return _digest([(f.name, s.st_size, s.st_mtime_ns) for f in files if f.exists() for s in [f.stat()]])


def _digest(value: Any) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _described(lab: Lab, asked: Sequence[Question], settings: Settings) -> dict[str, Any]:
    categories: dict[str, int] = {}
    for question in asked:
        categories[question.category] = categories.get(question.category, 0) + 1
    return {
        "target_parameters": count_parameters(lab.model),
        "draft_parameters": count_parameters(lab.ar) if lab.ar is not None else None,
        "dtype": ", ".join(sorted({str(a.dtype).rpartition(".")[2] for _, a in tree_flatten(lab.model.parameters())})),
        "cores": str(lab.cores),
        "blas": blas.missing() or ("one BLAS thread" if sys.platform == "linux" else "the system's BLAS"),
        "python": platform.python_version(),
        "asked_by_category": categories,
        "warmup_tokens": min(WARMUP_TOKENS, settings.max_tokens),
        "options": dict(lab.options),
    }
