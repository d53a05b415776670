"""`mirror-mlx bench law`: does the draft's work hide behind verification?"""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mirror_mlx.bench.equation import FACTORS
from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import (
    add_lab,
    add_prompts,
    add_window,
    check_plot,
    progress,
    rounded,
    settings_from,
    written,
)
from mirror_mlx.messages import PREDICTORS

DESCRIPTION = """\
Does a step cost what verification costs, while the draft prepares the next window beside it?

The lab: the target gets MLP columns that change nothing but its cost (--params), the draft waits until a set
time is over in each pass (--pass-ms), as on a Neural Engine, and each has a core of its own. A bare verify is the
verification of the very same windows with no draft at all. All tokens are compared with plain decoding.
"""

ROWS = (
    ("verify_ms", "bare verify, ms"),
    ("step_ms", "step, ms"),
    ("step_over_verify", "step ÷ bare verify"),
    ("draft_ms", "draft busy, ms"),
    ("hidden_draft_ms", "of it hidden, ms"),
    ("hidden_share", "share hidden, all steps"),
    ("pass_ms", "one draft pass, mean, ms"),
    ("rendezvous_us", "rendezvous, µs"),
    ("hit_rate", "hit rate"),
    ("tokens_per_step", "tokens per step"),
    ("steps", "steps"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab(parser)
    group = parser.add_argument_group("measurement")
    group.add_argument("--steps", metavar="N", type=int, default=100, help="steps to measure, at least (default: 100)")
    add_prompts(group)
    group.add_argument(
        "--unpaced",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure with the draft at its own speed as well (default: yes)",
    )
    group.add_argument(
        "--sweep", metavar="FACTOR", nargs="*", choices=FACTORS,
        help=f"vary each factor alone and compare with the latency law: {', '.join(FACTORS)} (none named: all)",
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")
    group.add_argument("--plot", metavar="FILE.png", help="draw both devices over some consecutive steps")
    group = parser.add_argument_group("decoding")
    add_window(group)
    group.add_argument("--streams", metavar="N", type=int, help="streams of a streaming draft (default: all it has)")
    group.add_argument("--predictor", choices=PREDICTORS, default="hybrid", help="who predicts (default: hybrid)")
    group.add_argument("--temp", metavar="N", type=float, default=0.0, help="temperature (default: 0, greedy)")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="of the sampling (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Measure and print. 0, or 1 where the tokens were not those of plain decoding."""
    if args.plot is not None:
        check_plot(args.plot)
    if args.sweep is not None:
        return _sweep(args)
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench.figures import disturbed
        from mirror_mlx.bench.law import Settings, measure

        settings = settings_from(args, Settings)
        with progress(settings.steps) as report:
            found, runs = measure(settings, report)
    if args.plot is not None:
        from mirror_mlx.bench.plot import draw

        with written(args.plot):
            draw(runs, settings.num_draft_tokens, Path(args.plot).expanduser(), _caption(found))
    if args.json:
        print(json.dumps(rounded(found)))
    else:
        _print(found)
    if said := disturbed(found["other_programs_cores"]):
        print(f"mirror-mlx: {said}", file=sys.stderr)
    if not found["identical"]:
        print("mirror-mlx: a run's tokens were not those of plain decoding", file=sys.stderr)
        return 1
    return 0


def _sweep(args: argparse.Namespace) -> int:
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench import sweep
        from mirror_mlx.bench.law import Settings

        settings = settings_from(args, Settings)
        factors = args.sweep or list(FACTORS)
        with progress(sum(1 for _ in sweep.points(settings, factors))) as report:
            found = sweep.measure(settings, factors, report)
    if args.plot is not None:
        from mirror_mlx.bench.plot_sweep import draw

        with written(args.plot):
            draw(found, Path(args.plot).expanduser())
    if args.json:
        print(json.dumps(rounded(found)))
    else:
        _print_sweep(found)
    return 0 if all(point["identical"] for point in found["points"]) else 1


def _print_sweep(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    times = ("verify", "beside", "tap", "pass", "J", "hits", "tok/step", "step", "law", "error", "alone")
    table.add_column("ms", no_wrap=True)
    for title in times:
        table.add_column(title, justify="right", no_wrap=True)
    for point in found["points"]:
        name = "as given" if point["factor"] is None else f"{point['factor']} {point['value']:g}"
        tap = "–" if point["tap_ms"] is None else f"{point['tap_ms']:.0f}"
        table.add_row(
            name, f"{point['tapped_verify_ms']:.1f}", f"{point['beside_draft_verify_ms']:.1f}", tap,
            f"{point['beside_pass_ms']:.1f}", str(point["passes"]), f"{point['hit_rate']:.0%}",
            f"{point['tokens_per_step']:.2f}", f"{point['measured_ms']:.1f}", f"{point['predicted_ms']:.1f}",
            f"{point['error']:+.1%}", f"{point['alone_error']:+.1%}",
        )  # fmt: skip
    console = Console(highlight=False, soft_wrap=True)
    console.print(_caption(found))
    console.print(table)
    console.print(
        f"\nerror of the law: median {found['median_error']:.1%}, largest {found['worst_error']:.1%}; from the "
        f"target's times without a draft: {found['median_alone_error']:.1%}, {found['worst_alone_error']:.1%}"
    )


def _caption(found: dict[str, Any]) -> str:
    lab = found["lab"]
    pace = f"{lab['pass_ms']:g} ms a pass" if lab["pass_ms"] else "at its own speed"
    draft = f"{lab['draft_params'] / 1e6:.1f} M parameters" if lab["draft_params"] else "no model"
    return f"target {lab['params'] / 1e6:.0f} M draft {draft}, {pace}; {lab['cores']}"


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    lab, free = found["lab"], found.get("unpaced")
    table = Table(box=None, pad_edge=False)
    table.add_column("medians")
    for title in ("paced", "p10 … p90", *(["own speed"] if free else [])):
        table.add_column(title, justify="right")
    for key, label in ROWS:
        spread = found.get(f"{key}_p10_p90")
        between = " … ".join(f"{value:.1f}" for value in spread) if spread else ""
        table.add_row(label, _cell(found[key]), between, *([_cell(free[key])] if free else []))
    console = Console(highlight=False, soft_wrap=True)
    console.print(_caption(found))
    console.print(
        f"{lab['num_draft_tokens']} proposals, κ {lab['kappa']}, {lab['max_roots']} roots, {lab['predictor']} "
        f"predictor, tap after {lab['exit_layer']} of {lab['layers']} layers, temperature {lab['temp']:g}\n"
    )
    console.print(table)
    console.print(f"\n{_budget_line(found)}")
    console.print("by next window, ms: " + ", ".join(f"{k} {v:.1f}" for k, v in found["step_ms_by_next"].items()))
    console.print(
        "hit rate by row: " + " ".join("–" if rate is None else f"{rate:.2f}" for rate in found["hit_rate_by_row"])
    )
    console.print(f"tokens equal those of plain decoding: {'yes' if found['identical'] else 'NO'}")


def _budget_line(found: dict[str, Any]) -> str:
    room = f"{found['after_glue_ms']:.0f} ms after the glue"
    if found["after_tap_ms"] is not None:
        room += f", {found['after_tap_ms']:.0f} ms after the tap"
    return (
        f"a rollout takes {found['draft_serial_ms']:.0f} ms in passes, {found['draft_serial_over_verify']:.2f} of a "
        f"bare verify; it has {room}: it {'fits' if found['fits'] else 'does not fit'}"
    )


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}" if value < 10 else f"{value:.1f}"
