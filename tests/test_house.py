"""The layers of the house: imports go one way, decisions are pure, files stay one idea."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mirror_mlx

ROOT = Path(mirror_mlx.__file__).parent
LAYERS = [
    {"errors", "messages", "blas", "memory", "threads", "storage", "problems"},
    {"trace", "verify", "outcomes", "pooling", "speculation", "lookup"},
    {"reader"},
    {"rounds", "options", "tuning"},
    {"sampling", "ranking", "interpose", "limits", "rollback", "prompts", "hub"},
    {"rejection"},
    {"target", "draft"},
    {"jobs", "worker"},
    {"rendezvous"},
    {"ahead", "briefing", "calibration"},
    {"decoding", "auto"},
    {"engine"},
    {"hosting"},
    {"loading"},
    {"train", "convert"},
    {"bench", "doctor"},
    {"cli"},
]
PURE = {"errors", "messages", "trace", "verify", "outcomes", "pooling", "speculation", "rounds", "options", "tuning"}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules():
    linked = (ROOT / "convert").glob("*.py")  # a link, which rglob does not follow
    for path in sorted({*ROOT.rglob("*.py"), *linked}):
        part = "cli" if path.stem == "__main__" else path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part not in ("__init__", "demo"):
            yield path, part


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize(("path", "part"), list(modules()), ids=lambda value: str(value)[-40:])
def test_imports_go_one_way(path, part):
    for name in imported(path):
        if not name.startswith("mirror_mlx."):
            continue
        other = name.split(".")[1]
        if {part, other} == {"target", "draft"}:
            raise AssertionError(f"{path.name} imports {name}: target and draft do not know each other")
        assert other == part or LEVEL[other] <= LEVEL[part], f"{path.name} imports {name}, which is above it"
        assert not (other != part and LEVEL[other] == LEVEL[part] and part in ("train", "bench", "target", "draft"))


def test_decisions_know_no_device_and_no_thread():
    for path, part in modules():
        if part in PURE:
            assert not {name.split(".")[0] for name in imported(path)} & {
                "mlx",
                "mlx_lm",
                "numpy",
                "threading",
                "queue",
            }


def test_the_protocol_of_the_draft_is_all_the_rendezvous_knows_of_drafts():
    names = [n for n in imported(ROOT / "rendezvous.py") if ".draft" in n]
    assert names == ["mirror_mlx.draft.protocol"]
    for name in ("worker.py", "engine.py", "decoding.py"):
        assert {n for n in imported(ROOT / name) if ".draft" in n} <= {"mirror_mlx.draft.protocol"}


def test_the_loop_fits_one_screen():
    tree = ast.parse((ROOT / "decoding.py").read_text())
    steps = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "steps")
    assert steps.end_lineno - steps.lineno < 40


def test_help_answers_at_once():
    times = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "mirror_mlx.cli.main", "--help"], check=True, capture_output=True)
        times.append(time.monotonic() - began)
    assert min(times) < 0.3
