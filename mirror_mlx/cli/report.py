"""Models and what a run did with them, in words."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror_mlx.engine import Engine
    from mirror_mlx.trace import Stats

_MODES = {
    "mirror": "mirror: the draft prepares the next tokens while the target checks these",
    "sd": "sd: draft and target take turns",
    "ar": "ar: the target alone",
    "auto": "auto: what is fastest here, as measured",
}


def models(engine: "Engine", args: argparse.Namespace) -> list[tuple[str, str]]:
    """Who answers, and how: names and what they stand for."""
    from mlx_lm.utils import get_total_parameters

    target = engine.target
    parts = [args.model, getattr(target.model, "model_type", ""), f"{target.num_layers} layers"]
    parts.append(f"{count(get_total_parameters(target.model))} parameters")
    if target.context_length is not None:
        parts.append(f"context {target.context_length}")
    if args.adapter_path is not None:
        parts.append(f"adapter {args.adapter_path}")
    drafted = engine.draft is not None or engine.proposes
    draft = [args.draft_model or "the pair's own"] if drafted else ["none"]
    drafter = getattr(engine.draft, "model", None)
    if drafter is not None:
        draft += [getattr(drafter, "model_type", ""), f"{count(get_total_parameters(drafter))} parameters"]
    if streams := getattr(engine.draft, "trained_streams", None):
        draft.append(f"{streams} streams")
    if host := getattr(engine.draft, "host", ""):
        draft.append(f"on {host}")
    mode = _MODES[engine.options.mode if drafted else "ar"]
    return [("target", " · ".join(filter(None, parts))), ("draft", " · ".join(filter(None, draft))), ("mode", mode)]


def count(number: int) -> str:
    """A large number, short.

    >>> count(7348224), count(8_190_735_360), count(512)
    ('7.3 M', '8.2 B', '512')
    """
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)


def stats_line(stats: "Stats") -> str:
    """One line for people.

    >>> from mirror_mlx.trace import Stats
    >>> stats_line(Stats(tokens=128, generation_tps=41.2, reason="there is no draft"))
    '128 tokens · 41.2 tok/s · ar: there is no draft'
    """
    tokens = f"{stats.tokens} token" + ("s" if stats.tokens != 1 else "")
    rate = [f"{stats.generation_tps:.1f} tok/s"] if stats.generation_tps else []
    return " · ".join([tokens, *rate, *speculation(stats, "tokens/step"), _mode(stats)])


def verbose_lines(stats: "Stats", peak_memory: float) -> list[str]:
    """mlx-lm's lines after an answer, and ours. peak_memory: GB."""
    lines = [
        f"Prompt: {stats.prompt_tokens} tokens, {stats.prompt_tps:.3f} tokens-per-sec",
        f"Generation: {stats.tokens} tokens, {stats.generation_tps:.3f} tokens-per-sec",
        f"Peak memory: {peak_memory:.3f} GB",
    ]
    if drafted := speculation(stats, "tokens per step"):
        lines.append(f"Speculation: {', '.join(drafted)}")
    if drafted and stats.draft_host:
        lines.append(f"Draft on {stats.draft_host}")
    return [*lines, f"Mode: {_mode(stats)}"]


def explain_lines(stats: "Stats") -> list[str]:
    """What decoded, what it was worth, and what was tried."""
    by_mode = ", ".join(f"{mode} {count}" for mode, count in stats.tokens_by_mode.items())
    lines = [f"tokens by mode: {by_mode or 'none'}", f"last: {stats.setting}"]
    if stats.gain is not None:
        lines.append(f"measured: {stats.gain:.2f} × plain decoding")
    if stats.drafted:
        lines.append(
            f"of {stats.drafted} proposals {stats.accepted} held; {100 * stats.hit_rate:.0f} % of outcomes were "
            f"prepared for; of {stats.draft_ms:.1f} ms of drafting a step {stats.hidden_draft_ms:.1f} were hidden, and "
            f"the target waited {stats.exposed_draft_ms:.1f}"
        )
        windows = [f"of {length} {count}" for length, count in stats.windows_by_length.items()]
        lines.append(f"windows by proposals: {', '.join(windows)}")
    lines += [f"decided: {line}" for line in stats.tried]
    return [*lines, *([f"why: {stats.reason}"] if stats.reason else [])]


def speculation(stats: "Stats", per_step: str) -> list[str]:
    """The draft's part, as far as there was one."""
    if not stats.drafted:
        return []
    parts = [f"{stats.tokens_per_step:.1f} {per_step}"]
    if stats.mode == "sd":
        return parts  # nothing was predicted, and nothing hidden
    if stats.hit_rate_by_row:
        parts.append(f"hit rate {100 * stats.hit_rate:.0f} %")
    if stats.draft_ms:
        parts.append(f"draft hidden {stats.hidden_draft_ms:.1f} of {stats.draft_ms:.1f} ms")
    return parts


def _mode(stats: "Stats") -> str:
    return f"{stats.mode}: {stats.reason}" if stats.reason else stats.mode
