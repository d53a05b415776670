"""In processes of their own: what is loaded first cannot be undone."""

import subprocess
import sys

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="OpenBLAS is put under MLX on Linux only")


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@linux
def test_its_absence_is_said_in_one_line_that_helps():
    said = run(
        "import ctypes.util; ctypes.util.find_library = lambda name: None\n"
        "import mirror_mlx; from mirror_mlx import blas; print(blas.missing())"
    )
    assert "reference BLAS" in said
    assert "apt install libopenblas0-pthread" in said
    assert "\n" not in said


@linux
def test_coming_too_late_is_said_too():
    said = run("import mlx.core\nimport mirror_mlx\nfrom mirror_mlx import blas; print(blas.missing())")
    assert "import mirror_mlx first" in said


def test_importing_the_package_imports_no_mlx():
    assert run("import sys, mirror_mlx; print('mlx.core' in sys.modules)") == "False"
    assert run("import mirror_mlx; print(mirror_mlx.load.__module__)") == "mirror_mlx.loading"
