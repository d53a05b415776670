"""The machine: system, chip, versions, and what MLX and Core ML find there."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mirror_mlx import blas, hosting, storage
from mirror_mlx.doctor.finding import Finding, Trouble, attempt
from mirror_mlx.draft.package import compiled

GROUP = "machine"
LIBRARIES = ("mirror-mlx", "mlx", "mlx-lm", "numpy", "coremltools", "pyobjc-framework-CoreML")


def examine() -> Iterator[Finding]:
    for name, work in (
        ("system", _system), ("chip", _chip), ("versions", _versions), ("target's device", _device),
    ):  # fmt: skip
        yield attempt(GROUP, name, work)
    yield _neural_engine()


def _system() -> tuple[str, Mapping[str, Any]]:
    if sys.platform != "darwin":
        return f"{platform.system()} {platform.release()}, {platform.machine()}", {}
    version = platform.mac_ver()[0]
    said, figures = f"macOS {version} ({compiled.build()}), {platform.machine()}", {"macos": version}
    if platform.machine() != "arm64":
        raise Trouble(said, "take a Mac with Apple silicon, and a Python for arm64: MLX needs both", figures)
    if int(version.partition(".")[0] or 0) < 15:
        raise Trouble(said, "update to macOS 15 or newer: before it there is no Core ML state", figures, "note")
    return said, figures


def _chip() -> tuple[str, Mapping[str, Any]]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = platform.processor() or platform.machine()
    if sys.platform == "darwin":
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=10, check=False
        )
        name = asked.stdout.strip() or name
    elif Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores, {memory:.0f} GiB", {
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
    }


def _versions() -> tuple[str, Mapping[str, Any]]:
    found = {"python": platform.python_version()}
    found |= {library: version for library in LIBRARIES if (version := storage.release(library)) is not None}
    return ", ".join(f"{name} {version}" for name, version in found.items()), found


def _device() -> tuple[str, Mapping[str, Any]]:
    if mx.default_device() == mx.Device(mx.cpu):
        said = "the CPU: MLX finds no GPU"
        if sys.platform == "darwin":
            raise Trouble(said, "reinstall MLX with a Python for arm64: pip install --force-reinstall mlx")
        if (slow := blas.missing()) is not None:
            raise Trouble(said, slow, status="note")
        return f"{said}, and has OpenBLAS", {}
    info = {name: value for name, value in mx.device_info().items() if isinstance(value, int | str)}
    return f"GPU, {info.get('device_name', 'of unknown name')}", info


def _neural_engine() -> Finding:
    name, lacking = "Neural Engine", hosting.lacking()
    if not lacking:
        library = {
            "coreml": "PyObjC",
            "coremltools": "coremltools, slower: pip install 'mirror-mlx[coreml]' for PyObjC",
        }
        host = hosting.coreml_host()
        return Finding(GROUP, name, "ok" if host == "coreml" else "note", f"Core ML through {library[host]}")
    return Finding(GROUP, name, "note" if sys.platform == "darwin" else "skipped", lacking)
