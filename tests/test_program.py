"""Saved packages, executed: every op against numpy, state over calls, compressed and shared weights, errors."""

import logging
import shutil
import sys
import threading
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.draft.package import program as program_module
from mirror_mlx.draft.package import program_exponentials, program_read
from mirror_mlx.draft.package.ops import OPS
from mirror_mlx.draft.package.program import Program
from mirror_mlx.draft.package.program_rules import Call, Tensor
from mirror_mlx.errors import DraftError

logging.disable(logging.WARNING)
ct = pytest.importorskip("coremltools")
logging.disable(logging.NOTSET)

from coremltools.converters.mil.mil import types  # noqa: E402
from coremltools.converters.mil.mil.ops.defs._utils import solve_slice_by_index_slice  # noqa: E402
from coremltools.converters.mil.mil.ops.defs.iOS18.compression import constexpr_blockwise_shift_scale  # noqa: E402
from coremltools.optimize import coreml as cto  # noqa: E402
from coremltools.optimize._utils import lut_to_dense  # noqa: E402

mb = ct.converters.mil.Builder
UNCHANGED = ct.PassPipeline.EMPTY
SHAPE = (2, 8, 3, 4)
half = np.float16
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    """coremltools shows a bar for each pass and says what it lacks on Linux."""
    from coremltools.converters.mil.mil.passes import pass_pipeline

    patch = pytest.MonkeyPatch()
    patch.setattr(pass_pipeline, "tqdm", lambda passes, **_: passes)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    patch.undo()


def convert(build, *specs, pipeline=UNCHANGED):
    """The MLModel of a function of the builder; `build` returns one Var, or name → Var."""

    def function(*inputs):
        found = build(*inputs)
        found = found if isinstance(found, dict) else {"out": found}
        return tuple(mb.identity(x=var, name=name) for name, var in found.items())

    names = build.__code__.co_varnames[: build.__code__.co_argcount]
    scope = {"function": function}
    exec(f"def named({', '.join(names)}): return function({', '.join(names)})", scope)
    made = mb.program(input_specs=list(specs), opset_version=ct.target.iOS18)(scope["named"])
    return ct.convert(
        made, source="milinternal", convert_to="mlprogram", minimum_deployment_target=ct.target.macOS15,
        skip_model_load=True, compute_precision=ct.precision.FLOAT16, pass_pipeline=pipeline,
    )  # fmt: skip


def saved(folder, build, *specs, pipeline=UNCHANGED) -> Path:
    convert(build, *specs, pipeline=pipeline).save(str(folder / "it.mlpackage"))
    return folder / "it.mlpackage"


def floats(*shape):
    return mb.TensorSpec(shape, dtype=types.fp16)


def integers(*shape):
    return mb.TensorSpec(shape, dtype=types.int32)


def state(*shape):
    return mb.StateTensorSpec(shape, dtype=types.fp16)


def random(*shape):
    return rng.standard_normal(shape).astype(half)


def run(package, *, precision="float32", kept=None, function="main", **inputs):
    program = Program(package, precision=precision)
    found = program.run(function, inputs, program.state() if kept is None else kept)
    return {name: np.array(value) for name, value in found.items()}


# Every op, side by side in one package.


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(x, axes, epsilon, gamma=1.0, beta=0.0):
    x = x - x.mean(axes, keepdims=True)
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * gamma + beta


def soft(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def erf(x):
    from math import erf

    return np.vectorize(erf)(x)


def top(x, axis, k):
    order = np.argsort(-x, axis=axis, kind="stable")
    return np.take(order, range(k), axis=axis)


WEIGHT, BIAS, GAIN, SHIFT = random(6, 8, 1, 1), random(6), random(4), random(4)
GROUPED = random(6, 4, 1, 1)
MATRIX, CHANNEL = random(5, 4), random(8)
ROWS = np.array([3, -1, 0, 7, 3], np.int32)
ALONG = rng.integers(0, 8, SHAPE).astype(np.int32)
C = np.array

PAIRS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "real_div": np.divide,
}  # fmt: skip
COMPARED = {
    "greater": np.greater, "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal,
    "equal": np.equal, "not_equal": np.not_equal,
}  # fmt: skip
SINGLES = {
    "exp": np.exp, "tanh": np.tanh, "square": np.square, "abs": np.abs, "ceil": np.ceil, "floor": np.floor,
    "sin": np.sin, "cos": np.cos, "sigmoid": sigmoid, "silu": lambda x: x * sigmoid(x), "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
REDUCED = {"reduce_max": np.max, "reduce_min": np.min, "reduce_sum": np.sum, "reduce_mean": np.mean}


def as_numbers(flags):
    return mb.cast(x=flags, dtype="fp16")


# name → (MIL, numpy) over x, y [2, 8, 3, 4], of which some entries are equal
CASES = {
    **{k: (lambda x, y, k=k: getattr(mb, k)(x=x, y=y), lambda x, y, f=f: f(x, y)) for k, f in PAIRS.items()},
    **{k: (lambda x, y, k=k: as_numbers(getattr(mb, k)(x=x, y=y)), lambda x, y, f=f: f(x, y))
       for k, f in COMPARED.items()},
    **{k: (lambda x, y, k=k: getattr(mb, k)(x=x), lambda x, y, f=f: f(x)) for k, f in SINGLES.items()},
    **{k: (lambda x, y, k=k: getattr(mb, k)(x=x, axes=[1, -1], keep_dims=True),
           lambda x, y, f=f: f(x, (1, 3), keepdims=True)) for k, f in REDUCED.items()},
    **{k + "_all": (lambda x, y, k=k: getattr(mb, k)(x=x, keep_dims=True),
                    lambda x, y, f=f: f(x, keepdims=True)) for k, f in REDUCED.items()},
    **{k + "_dropped": (lambda x, y, k=k: getattr(mb, k)(x=x, axes=[2], keep_dims=False),
                        lambda x, y, f=f: f(x, 2)) for k, f in REDUCED.items()},
    "by a number": (lambda x, y: mb.mul(x=x, y=half(-0.5)), lambda x, y: -0.5 * x),
    "by a row": (lambda x, y: mb.add(x=x, y=GAIN), lambda x, y: x + GAIN),
    "from a number": (lambda x, y: mb.sub(x=half(1), y=x), lambda x, y: 1 - x),
    "sqrt": (lambda x, y: mb.sqrt(x=mb.abs(x=x)), lambda x, y: np.sqrt(np.abs(x))),
    "rsqrt": (lambda x, y: mb.rsqrt(x=mb.abs(x=x), epsilon=half(0.5)), lambda x, y: 1 / np.sqrt(np.abs(x) + 0.5)),
    "log": (lambda x, y: mb.log(x=mb.abs(x=x), epsilon=half(0.5)), lambda x, y: np.log(np.abs(x) + 0.5)),
    "inverse": (lambda x, y: mb.inverse(x=mb.abs(x=x), epsilon=half(0.5)), lambda x, y: 1 / (np.abs(x) + 0.5)),
    "pow": (lambda x, y: mb.pow(x=mb.abs(x=x), y=half(3)), lambda x, y: np.abs(x) ** 3),
    "clip": (lambda x, y: mb.clip(x=x, alpha=half(-0.5), beta=half(1)), lambda x, y: np.clip(x, -0.5, 1)),
    "gelu": (lambda x, y: mb.gelu(x=x, mode="EXACT"), lambda x, y: 0.5 * x * (1 + erf(x / np.sqrt(2)))),
    "gelu tanh": (lambda x, y: mb.gelu(x=x, mode="TANH_APPROXIMATION"), lambda x, y: gelu_tanh(x)),
    "gelu sigmoid": (lambda x, y: mb.gelu(x=x, mode="SIGMOID_APPROXIMATION"), lambda x, y: x * sigmoid(1.702 * x)),
    "logical": (
        lambda x, y: as_numbers(mb.logical_and(
            x=mb.logical_not(x=mb.greater(x=x, y=y)), y=mb.logical_or(x=mb.less(x=x, y=half(0)), y=mb.less(x=y, y=x)))),
        lambda x, y: ~(x > y) & ((x < 0) | (y < x))),
    "select": (lambda x, y: mb.select(cond=mb.greater(x=x, y=half(0)), a=x, b=y), lambda x, y: np.where(x > 0, x, y)),
    "select a number": (lambda x, y: mb.select(cond=mb.greater(x=x, y=y), a=x, b=half(-1e4)),
                        lambda x, y: np.where(x > y, x, -1e4)),
    "cast": (lambda x, y: mb.cast(x=mb.cast(x=mb.mul(x=x, y=half(5)), dtype="int32"), dtype="fp16"),
             lambda x, y: np.trunc(5 * x)),
    "cast to bool": (lambda x, y: as_numbers(mb.cast(x=mb.sub(x=x, y=y), dtype="bool")), lambda x, y: x != y),
    "softmax": (lambda x, y: mb.softmax(x=x, axis=-1), lambda x, y: soft(x, -1)),
    "softmax over channels": (lambda x, y: mb.softmax(x=x, axis=1), lambda x, y: soft(x, 1)),
    "masked softmax": (lambda x, y: mb.softmax(x=mb.add(x=x, y=C([0, -1e4, 0, -1e4], half)), axis=-1),
                       lambda x, y: soft(x + C([0, -1e4, 0, -1e4]), -1)),
    "matmul": (lambda x, y: mb.matmul(x=x, y=y, transpose_y=True), lambda x, y: x @ y.swapaxes(-1, -2)),
    "matmul x": (lambda x, y: mb.matmul(x=x, y=y, transpose_x=True), lambda x, y: x.swapaxes(-1, -2) @ y),
    "matmul const": (lambda x, y: mb.matmul(x=x, y=MATRIX, transpose_y=True), lambda x, y: x @ MATRIX.T),
    "linear": (lambda x, y: mb.linear(x=x, weight=MATRIX, bias=BIAS[:5]), lambda x, y: x @ MATRIX.T + BIAS[:5]),
    "conv": (lambda x, y: mb.conv(x=x, weight=WEIGHT), lambda x, y: np.einsum("oc,nchw->nohw", WEIGHT[..., 0, 0], x)),
    "conv bias": (lambda x, y: mb.conv(x=x, weight=WEIGHT, bias=BIAS, pad_type="valid"),
                  lambda x, y: np.einsum("oc,nchw->nohw", WEIGHT[..., 0, 0], x) + BIAS[:, None, None]),
    "conv groups": (lambda x, y: mb.conv(x=x, weight=GROUPED, groups=2),
                    lambda x, y: np.concatenate([np.einsum("oc,nchw->nohw", GROUPED[:3, :, 0, 0], x[:, :4]),
                                                 np.einsum("oc,nchw->nohw", GROUPED[3:, :, 0, 0], x[:, 4:])], 1)),
    "conv computed": (lambda x, y: mb.conv(x=x, weight=mb.mul(
        x=mb.reshape(x=mb.slice_by_index(x=y, begin=[0, 0, 0, 0], end=[1, 8, 3, 2]), shape=[6, 8, 1, 1]), y=half(1))),
        lambda x, y: np.einsum("oc,nchw->nohw", y[:1, :, :, :2].reshape(6, 8), x)),
    "layer_norm": (lambda x, y: mb.layer_norm(x=x, axes=[-1], epsilon=half(1e-3), gamma=GAIN, beta=SHIFT),
                   lambda x, y: normed(x, -1, float(half(1e-3)), GAIN, SHIFT)),
    "layer_norm bare": (lambda x, y: mb.layer_norm(x=x, axes=[-1], epsilon=half(1e-3)),
                        lambda x, y: normed(x, -1, float(half(1e-3)))),
    "layer_norm channels": (lambda x, y: mb.layer_norm(x=x, axes=[1], epsilon=half(1e-3), gamma=CHANNEL),
                            lambda x, y: normed(x, 1, float(half(1e-3)), CHANNEL[:, None, None])),
    "layer_norm two": (lambda x, y: mb.layer_norm(x=x, axes=[-2, -1], epsilon=half(1e-3)),
                       lambda x, y: normed(x, (2, 3), float(half(1e-3)))),
    "rms norm": (
        lambda x, y: mb.slice_by_index(x=mb.layer_norm(x=mb.concat(values=[x, mb.mul(x=x, y=half(-1))], axis=-1),
                                                       axes=[-1], epsilon=half(1e-3)), begin=[0] * 4, end=[*SHAPE]),
        lambda x, y: x / np.sqrt((x * x).mean(-1, keepdims=True) + float(half(1e-3)))),
    "attention": (lambda x, y: mb.scaled_dot_product_attention(query=x, key=y, value=y,
                                                               attn_mask=C([[0, 0, -1e4]] * 3, half)),
                  lambda x, y: soft(x @ y.swapaxes(-1, -2) / 2 + C([0, 0, -1e4]), -1) @ y),
    "reduce_argmax": (lambda x, y: mb.reduce_argmax(x=x, axis=1, keep_dims=True),
                      lambda x, y: np.argmax(x, 1, keepdims=True)),
    "reduce_argmin": (lambda x, y: mb.reduce_argmin(x=x, axis=-1, keep_dims=False), lambda x, y: np.argmin(x, -1)),
    "topk values": (lambda x, y: mb.topk(x=x, k=3, axis=1)[0],
                    lambda x, y: np.take_along_axis(x, top(x, 1, 3), 1)),
    "topk indices": (lambda x, y: mb.topk(x=x, k=3, axis=1)[1], lambda x, y: top(x, 1, 3)),
    "topk least": (lambda x, y: mb.topk(x=x, k=2, axis=-1, ascending=True)[0],
                   lambda x, y: np.sort(x, axis=-1)[..., :2]),
    "concat": (lambda x, y: mb.concat(values=[x, y, x], axis=2), lambda x, y: np.concatenate([x, y, x], 2)),
    "concat one": (lambda x, y: mb.concat(values=[x], axis=2), lambda x, y: x),
    "stack": (lambda x, y: mb.stack(values=[x, y], axis=1), lambda x, y: np.stack([x, y], 1)),
    "split": (lambda x, y: mb.split(x=x, num_splits=4, axis=1)[2], lambda x, y: x[:, 4:6]),
    "split sizes": (lambda x, y: mb.split(x=x, split_sizes=[1, 5, 2], axis=1)[1], lambda x, y: x[:, 1:6]),
    "reshape": (lambda x, y: mb.reshape(x=x, shape=[4, -1]), lambda x, y: x.reshape(4, -1)),
    "reshape transposed": (lambda x, y: mb.reshape(x=mb.transpose(x=x, perm=[0, 3, 2, 1]), shape=[2, 12, 8]),
                           lambda x, y: x.transpose(0, 3, 2, 1).reshape(2, 12, 8)),
    "transpose": (lambda x, y: mb.transpose(x=x, perm=[3, 0, 1, 2]), lambda x, y: x.transpose(3, 0, 1, 2)),
    "expand_dims": (lambda x, y: mb.expand_dims(x=x, axes=[-1]), lambda x, y: x[..., None]),
    "squeeze": (lambda x, y: mb.squeeze(x=mb.expand_dims(x=x, axes=[1]), axes=[1]), lambda x, y: x),
    "squeeze all": (lambda x, y: mb.squeeze(x=mb.expand_dims(x=x, axes=[1])), lambda x, y: x),
    "tile": (lambda x, y: mb.tile(x=x, reps=[1, 2, 1, 3]), lambda x, y: np.tile(x, [1, 2, 1, 3])),
    "gather": (lambda x, y: mb.gather(x=x, indices=ROWS, axis=1, validate_indices=False),
               lambda x, y: x[:, ROWS]),
    "gather_along_axis": (lambda x, y: mb.gather_along_axis(x=x, indices=ALONG, axis=1, validate_indices=False),
                          lambda x, y: np.take_along_axis(x, ALONG, 1)),
    "slice": (lambda x, y: mb.slice_by_index(x=x, begin=[0, -5, 0, 3], end=[2, -1, 9, 0], stride=[1, 2, 1, -1],
                                             end_mask=[False, False, True, False]),
              lambda x, y: x[:, -5:-1:2, :, 3:0:-1]),
    "slice squeezed": (lambda x, y: mb.slice_by_index(x=x, begin=[1, 2, 0, -1], end=[0, 0, 2, 0],
                                                      squeeze_mask=[True, False, False, True],
                                                      end_mask=[False, True, False, False]),
                       lambda x, y: x[1, 2:, :2, -1]),
    "slice_update": (lambda x, y: mb.slice_update(x=x, update=mb.slice_by_index(x=y, begin=[0] * 4, end=[2, 3, 3, 4]),
                                                  begin=[0, 2, 0, 0], end=[2, 5, 3, 4]),
                     lambda x, y: np.concatenate([x[:, :2], y[:, :3], x[:, 5:]], 1)),
}  # fmt: skip


def mil_name(name):
    return "case_" + name.replace(" ", "_")


@pytest.fixture(scope="module")
def sheet(tmp_path_factory):
    def build(x, y):
        return {mil_name(name): case[0](x, y) for name, case in CASES.items()}

    package = saved(tmp_path_factory.mktemp("sheet"), build, floats(*SHAPE), floats(*SHAPE))
    x, y = random(*SHAPE), random(*SHAPE)
    y[:, ::3] = x[:, ::3]
    y[y == 0] = half(1)
    found = {precision: run(package, precision=precision, x=x, y=y) for precision in ("float32", "float16")}
    return x.astype(np.float32), y.astype(np.float32), found


@pytest.mark.parametrize("name", CASES)
def test_an_op_means_what_numpy_says(sheet, name):
    x, y, found = sheet
    expected = np.asarray(CASES[name][1](x, y))
    got = found["float32"][mil_name(name)]
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_float16_differs_by_rounding_only(sheet, name):
    _, _, found = sheet
    exact, got = found["float32"][mil_name(name)], found["float16"][mil_name(name)]
    if exact.dtype == np.int32:
        assert np.array_equal(got, exact)
    elif name in PAIRS | SINGLES:
        assert np.array_equal(got, exact.astype(half))
    else:
        assert got.dtype == half
        # Half a unit in the last place for the result, and as much for what it is made of.
        np.testing.assert_allclose(got.astype(np.float32), exact, rtol=2e-3, atol=4e-3)


def test_every_float16_result_is_rounded(tmp_path):
    def build(x):
        far = mb.add(x=x, y=half(2048))
        return {"back": mb.sub(x=far, y=half(2048)), "over": mb.mul(x=mb.add(x=far, y=far), y=far)}

    package, x = saved(tmp_path, build, floats(1, 4)), C([[0.25, 0.75, 1.0, 3.0]], half)
    found = run(package, x=x)
    assert np.array_equal(found["back"], x.astype(np.float32))
    assert found["over"].max() > 65504
    found = run(package, precision="float16", x=x)
    assert found["back"].tolist() == [[0.0, 0.0, 0.0, 4.0]]  # to even, two apart
    assert np.isinf(found["over"]).all()


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    draws=st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6), st.sampled_from([1, 2, -1]), st.booleans(),
                             st.booleans(), st.booleans()), min_size=4, max_size=4),
)  # fmt: skip
def test_slices_are_those_of_coremltools(shape, draws):
    begin, end, stride, begin_mask, end_mask, squeeze = (list(one) for one in zip(*draws[: len(shape)], strict=True))
    for i, size in enumerate(shape):
        if squeeze[i]:  # a single entry, which must be there
            begin[i] = begin[i] % size
            stride[i] = 1
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    expected = x[solve_slice_by_index_slice(shape, begin, end, list(stride), begin_mask, end_mask, squeeze)]
    expected = expected.reshape([s for s, dropped in zip(expected.shape, squeeze, strict=True) if not dropped])
    known = {"begin": C(begin), "end": C(end), "stride": C(stride), "begin_mask": C(begin_mask),
             "end_mask": C(end_mask), "squeeze_mask": C(squeeze)}  # fmt: skip
    for fixed in (True, False):
        arguments = known if fixed else {k: v for k, v in known.items() if k not in ("begin", "end")}
        call = Call("here", dict(arguments), {"x": tuple(shape)}, [Tensor(expected.shape, "fp32")], mx)
        got = OPS["slice_by_index"].build(call)(mx.array(x), C(begin), C(end))
        assert np.array_equal(np.array(got), expected)


# Places known only at run time.


def put(x, rows, pos, scale=1):
    """Rows into x at slot scale·pos of axis 2, and the four slots from there on."""
    pos = mb.mul(x=pos, y=C([scale], np.int32))
    last = mb.add(x=pos, y=C([4], np.int32))
    none = np.zeros(2, np.int32)
    begin = mb.concat(values=[none, pos, none[:1]], axis=0)
    end = mb.concat(values=[C([1, 2], np.int32), last, C([3], np.int32)], axis=0)
    new = mb.slice_update(x=x, update=rows, begin=begin, end=end)
    end_mask = [True, True, False, True]
    stop = mb.concat(values=[none, last, none[:1]], axis=0)
    part = mb.slice_by_index(x=new, begin=begin, end=stop, end_mask=end_mask)
    return {"new": new, "part": mb.reshape(x=mb.mul(x=part, y=half(2)), shape=[1, 2, 4, 3])}


@pytest.mark.parametrize("wrap", [lambda pos: pos, mx.array], ids=["numpy", "mlx"])
def test_slots_from_an_input(tmp_path, wrap):
    def build(x, rows, pos):
        return put(x, rows, pos, scale=2)

    program = Program(saved(tmp_path, build, floats(1, 2, 12, 3), floats(1, 2, 4, 3), integers(1)))
    assert program.inputs("main") == {
        "x": ((1, 2, 12, 3), "fp16"), "rows": ((1, 2, 4, 3), "fp16"), "pos": ((1,), "int32"),
    }  # fmt: skip
    assert program.outputs("main") == {"new": ((1, 2, 12, 3), "fp16"), "part": ((1, 2, 4, 3), "fp16")}
    x, rows = random(1, 2, 12, 3), random(1, 2, 4, 3)
    for pos in (0, 3, 4):
        found = program.run("main", {"x": x, "rows": mx.array(rows), "pos": wrap(C([pos], np.int32))}, {})
        expected = x.astype(np.float32)
        expected[:, :, 2 * pos : 2 * pos + 4] = rows
        assert np.array_equal(np.array(found["new"]), expected)
        assert np.array_equal(np.array(found["part"]), 2 * rows.astype(np.float32))
    for pos in (5, -1):
        with pytest.raises(DraftError, match="does not hold"):
            program.run("main", {"x": x, "rows": rows, "pos": wrap(C([pos], np.int32))}, {})


def test_slots_computed_on_the_device(tmp_path):
    def build(x, rows, scores):
        return put(x, rows, mb.reduce_argmax(x=scores, axis=0, keep_dims=True))

    package = saved(tmp_path, build, floats(1, 2, 12, 3), floats(1, 2, 4, 3), floats(20))
    x, rows, scores = random(1, 2, 12, 3), random(1, 2, 4, 3), np.zeros(20, half)
    scores[7] = 1
    found = run(package, x=x, rows=rows, scores=scores)
    assert np.array_equal(found["new"][:, :, 7:11], rows.astype(np.float32))
    assert np.array_equal(found["new"][:, :, :7], x[:, :, :7].astype(np.float32))


def test_integers_stay_integers(tmp_path):
    """Sums, joins, gathers, casts and choices of small integers, some of which then meet tensors."""

    def build(pos, x):
        many = mb.concat(values=[pos, mb.add(x=pos, y=C([5], np.int32)), C([40], np.int32)], axis=0)
        chosen = mb.gather(x=many, indices=C([2, 0], np.int32), axis=0, validate_indices=False)
        larger = mb.select(cond=mb.greater(x=many, y=C([6], np.int32)), a=many, b=mb.mul(x=many, y=many))
        summed = mb.reduce_sum(x=larger, axes=[0], keep_dims=True)
        split = mb.split(x=many, split_sizes=[1, 2], axis=0)[1]
        return {
            "chosen": chosen, "larger": larger, "summed": summed,
            "split": mb.maximum(x=split, y=C([9, 9], np.int32)),
            "scaled": mb.mul(x=x, y=mb.cast(x=many, dtype="fp16")),
            "rest": mb.mod(x=mb.floor_div(x=many, y=C([2], np.int32)), y=C([7], np.int32)),
        }  # fmt: skip

    found = run(saved(tmp_path, build, integers(1), floats(3)), pos=C([2], np.int32), x=C([1, 2, 3], half))
    expected = {
        "chosen": [40, 2], "larger": [4, 7, 40], "summed": [51], "split": [9, 40], "scaled": [2, 14, 120],
        "rest": [1, 3, 6],
    }  # fmt: skip
    assert {name: value.tolist() for name, value in found.items()} == expected
    assert {value.dtype.name for name, value in found.items() if name != "scaled"} == {"int32"}


# State.


def test_state_carries_over_calls_and_is_functional(tmp_path):
    def build(x, kv):
        full = mb.read_state(input=kv)
        full = mb.coreml_update_state(state=kv, value=mb.add(x=full, y=x))
        return mb.coreml_update_state(state=kv, value=mb.mul(x=full, y=half(2)))

    program = Program(saved(tmp_path, build, floats(1, 4), state(1, 4), pipeline=None))
    assert list(program.inputs("main")) == ["x"]
    kept, other = program.state(), program.state()
    x = C([[1, 2, 3, 4]], half)
    for expected in (2, 6, 14):
        before, values = kept["kv"], np.array(kept["kv"])
        found = program.run("main", {"x": x}, kept)
        assert (
            np.array(found["out"]).tolist() == np.array(kept["kv"]).tolist() == [[expected * i for i in (1, 2, 3, 4)]]
        )
        assert np.array_equal(np.array(before), values)
    assert not np.array(other["kv"]).any()


def read_again(x, kv):
    mb.coreml_update_state(state=kv, value=mb.add(x=mb.read_state(input=kv), y=x))
    mb.coreml_update_state(state=kv, value=mb.mul(x=mb.read_state(input=kv), y=half(2)))
    return mb.identity(x=mb.read_state(input=kv))


def test_state_that_is_read_again_is_what_was_written(tmp_path):
    kept = Program(saved(tmp_path, read_again, floats(1, 4), state(1, 4))).state()
    for expected in (2, 6):
        found = run(tmp_path / "it.mlpackage", kept=kept, x=np.ones((1, 4), half))
        assert found["out"].tolist() == [[expected] * 4]


def test_reads_that_coremltools_merged_are_seen_as_merged(tmp_path):
    """Its passes take both reads for one, of the state before the call: the package is wrong, and is seen to be."""
    package = saved(tmp_path, read_again, floats(1, 4), state(1, 4), pipeline=None)
    assert run(package, x=np.ones((1, 4), half))["out"].tolist() != [[2.0] * 4]


def test_keys_and_values_in_slots(tmp_path):
    """A layer of attention with its slots, four columns at a time, against all columns at once."""
    width, heads, slots, columns = 8, 2, 16, 4
    q, k, v = (random(width, width, 1, 1) for _ in range(3))

    def rows(x, weight):
        x = mb.reshape(x=mb.conv(x=x, weight=weight), shape=[1, heads, width // heads, columns])
        return mb.transpose(x=x, perm=[0, 1, 3, 2])

    def build(h, mask, pos, kv):
        full = mb.read_state(input=kv)
        end = mb.add(x=pos, y=C([columns], np.int32))
        for i, weight in enumerate((k, v)):
            begin = mb.concat(values=[C([i, 0], np.int32), pos, C([0], np.int32)], axis=0)
            stop = mb.concat(values=[C([i + 1, heads], np.int32), end, C([width // heads], np.int32)], axis=0)
            new = mb.slice_update(x=full, update=rows(h, weight), begin=begin, end=stop)
            full = mb.coreml_update_state(state=kv, value=new)
        keys, values = mb.split(x=full, num_splits=2, axis=0)
        weights = mb.softmax(x=mb.add(x=mb.matmul(x=rows(h, q), y=keys, transpose_y=True), y=mask), axis=-1)
        out = mb.transpose(x=mb.matmul(x=weights, y=values), perm=[0, 1, 3, 2])
        return mb.add(x=h, y=mb.reshape(x=out, shape=[1, width, 1, columns]))

    specs = (
        floats(1, width, 1, columns),
        floats(1, 1, columns, slots),
        integers(1),
        state(2, heads, slots, width // heads),
    )
    program = Program(saved(tmp_path, build, *specs, pipeline=None))
    x = (rng.standard_normal((width, slots)) / 4).astype(half)
    kept, found = program.state(), []
    for pos in range(0, slots, columns):
        seen = np.arange(slots) <= np.arange(pos, pos + columns)[:, None]
        inputs = {"h": x[None, :, None, pos : pos + columns], "pos": C([pos], np.int32),
                  "mask": np.where(seen, 0, -1e4).astype(half)[None, None]}  # fmt: skip
        found.append(np.array(program.run("main", inputs, kept)["out"])[0, :, 0])

    def all_rows(weight):
        return (weight[:, :, 0, 0].astype(np.float32) @ x).reshape(heads, -1, slots).swapaxes(1, 2)

    scores = all_rows(q) @ all_rows(k).swapaxes(1, 2) + np.where(np.tri(slots) > 0, 0, -1e4)
    expected = x + (soft(scores, -1) @ all_rows(v)).swapaxes(1, 2).reshape(width, slots)
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=1e-5)


# Weights.


def weighted(x):
    return mb.conv(x=x, weight=BIG)


BIG = random(64, 64, 1, 1)
COMPRESSIONS = {
    "int8": (cto.linear_quantize_weights, cto.OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8")),
    "uint8": (cto.linear_quantize_weights, cto.OpLinearQuantizerConfig(mode="linear", dtype="uint8")),
    "int4 blocks": (cto.linear_quantize_weights,
                    cto.OpLinearQuantizerConfig(dtype="int4", granularity="per_block", block_size=16)),
    "lut6": (cto.palettize_weights, cto.OpPalettizerConfig(mode="uniform", nbits=6)),
    "lut4 groups": (cto.palettize_weights, cto.OpPalettizerConfig(
        mode="uniform", nbits=4, granularity="per_grouped_channel", group_size=16)),
}  # fmt: skip


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compressed_weights_are_what_coremltools_makes_of_them(tmp_path, kind):
    compress, config = COMPRESSIONS[kind]
    small = compress(convert(weighted, floats(1, 64, 1, 64)), cto.OptimizationConfig(global_config=config))
    small.save(str(tmp_path / "small.mlpackage"))
    cto.decompress_weights(small).save(str(tmp_path / "large.mlpackage"))
    ones = np.eye(64, dtype=half)[None, :, None]
    expected = run(tmp_path / "large.mlpackage", x=ones)["out"]
    assert np.array_equal(run(tmp_path / "small.mlpackage", x=ones)["out"], expected)
    assert 0 < np.abs(expected[0, :, 0] - BIG[:, :, 0, 0]).max() < 1
    weight = (tmp_path / "small.mlpackage/Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    assert weight < 2 * BIG.size  # it was compressed


@given(blocks=st.tuples(st.integers(1, 3), st.integers(1, 3)), sizes=st.tuples(st.integers(1, 3), st.integers(1, 3)),
       width=st.sampled_from([1, 2, 3]), axis=st.integers(-2, 1), seed=st.integers(0, 99))  # fmt: skip
def test_palettes_of_any_shape(blocks, sizes, width, axis, seed):
    own = np.random.default_rng(seed)
    indices = own.integers(0, 4, [b * s for b, s in zip(blocks, sizes, strict=True)]).astype(np.uint8)
    lut = own.standard_normal((*blocks, 4, width)).astype(half)
    assert np.array_equal(program_read._looked_up(indices, lut, axis), lut_to_dense(indices, lut, axis))


@given(blocks=st.tuples(st.integers(1, 3), st.integers(1, 3)), sizes=st.tuples(st.integers(1, 3), st.integers(1, 3)),
       shifted=st.booleans(), seed=st.integers(0, 99))  # fmt: skip
def test_scales_of_any_shape(blocks, sizes, shifted, seed):
    own = np.random.default_rng(seed)
    data = own.integers(-128, 128, [b * s for b, s in zip(blocks, sizes, strict=True)]).astype(np.int8)
    scale = own.standard_normal(blocks).astype(half)
    offset = own.integers(-128, 128, blocks).astype(np.int8) if shifted else None
    expected = constexpr_blockwise_shift_scale.decompress(data, scale, offset)
    assert np.array_equal(program_read._shifted(data, scale, offset), expected)


def test_functions_share_their_weights(tmp_path):
    saved(tmp_path, weighted, floats(1, 64, 1, 4)).rename(tmp_path / "four.mlpackage")
    saved(tmp_path, weighted, floats(1, 64, 1, 8)).rename(tmp_path / "eight.mlpackage")
    both = ct.utils.MultiFunctionDescriptor()
    both.add_function(str(tmp_path / "four.mlpackage"), "main", "four")
    both.add_function(str(tmp_path / "eight.mlpackage"), "main", "eight")
    both.default_function_name = "four"
    ct.utils.save_multifunction(both, str(tmp_path / "both.mlpackage"))
    program = Program(tmp_path / "both.mlpackage")
    assert program.functions == ("eight", "four")
    assert program.nbytes == Program(tmp_path / "four.mlpackage").nbytes == 4 * BIG.size
    held = [[v for v in plan.values if isinstance(v, mx.array)] for plan in program._plans.values()]
    assert held[0][0] is held[1][0]
    x = random(1, 64, 1, 8)
    whole = np.array(program.run("eight", {"x": x}, {})["out"])
    part = np.array(program.run("four", {"x": x[..., :4]}, {})["out"])
    np.testing.assert_allclose(whole[..., :4], part, atol=1e-4)


# How it runs.


def test_pieces_change_nothing(tmp_path, monkeypatch):
    def build(x):
        for _ in range(9):
            x = mb.softmax(x=mb.add(x=mb.conv(x=x, weight=BIG), y=x), axis=1)
        return x

    package, x = saved(tmp_path, build, floats(1, 64, 1, 4)), random(1, 64, 1, 4)
    found = []
    for piece in (1, 3, 1000):
        monkeypatch.setattr(program_module, "PIECE", piece)
        found.append(run(package, x=x)["out"])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_exponentials_of_mlx_and_of_numpy_agree(tmp_path, monkeypatch):
    kinds = ("exp", "sigmoid", "silu", "tanh", "softmax")

    def build(x):
        found = {"out_" + kind: getattr(mb, kind)(x=x) for kind in kinds if kind != "softmax"}
        return found | {"out_softmax": mb.softmax(x=x, axis=1), "out_gelu": mb.gelu(x=x, mode="TANH_APPROXIMATION")}

    package, x = saved(tmp_path, build, floats(2, 9)), C([np.linspace(-80, 80, 9), [0, -1e4] + [1] * 7], half)
    found = []
    for numpy in (True, False):
        monkeypatch.setattr(program_exponentials, "by_numpy", lambda numpy=numpy: numpy)
        found.append(run(package, x=x))
    for name, values in found[0].items():
        np.testing.assert_allclose(values, found[1][name], rtol=1e-5, atol=1e-30)


def test_another_thread_may_run_it(tmp_path):
    program = Program(saved(tmp_path, read_again, floats(1, 4), state(1, 4)))
    kept, found = program.state(), []
    thread = threading.Thread(target=lambda: found.append(program.run("main", {"x": np.ones((1, 4), half)}, kept)))
    thread.start()
    thread.join(60)
    assert np.array(found[0]["out"]).tolist() == [[2.0] * 4]


def test_an_output_may_be_an_input_or_a_constant(tmp_path):
    def build(x):
        return {"same": mb.identity(x=x), "fixed": mb.add(x=GAIN, y=GAIN)}

    found = run(saved(tmp_path, build, floats(4)), x=SHIFT)
    assert np.array_equal(found["same"], SHIFT.astype(np.float32))
    assert np.array_equal(found["fixed"], (GAIN + GAIN).astype(np.float32))


# What it refuses.


def test_an_unknown_op_is_named(tmp_path):
    def build(x):
        return mb.cumsum(x=x, axis=0)

    package = saved(tmp_path, build, floats(4))
    with pytest.raises(DraftError, match=r"it\.mlpackage: function main: op cumsum is not known"):
        Program(package)


REFUSED = {
    "a kernel of 3 x 3": lambda x: mb.conv(x=x, weight=random(2, 8, 3, 3)),
    "a stride or a padding": lambda x: mb.conv(x=x, weight=WEIGHT, strides=[2, 1]),
    "'interleave'": lambda x: mb.concat(values=[x, x], axis=1, interleave=True),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_part_that_is_not_done_is_named(tmp_path, what):
    with pytest.raises(DraftError, match=f"function main: .*{what} is not supported"):
        Program(saved(tmp_path, REFUSED[what], floats(1, 8, 4, 4)))


def test_flexible_shapes_are_refused(tmp_path):
    def build(x):
        return mb.add(x=x, y=half(1))

    model = convert(build, floats(1, 4))
    spec = model.get_spec()
    size = spec.mlProgram.functions["main"].inputs[0].type.tensorType.dimensions[1]
    size.unknown.variadic = False
    ct.models.utils.save_spec(spec, str(tmp_path / "it.mlpackage"), weights_dir=model.weights_dir)
    with pytest.raises(DraftError, match="main: x, which is fp16 of any shape, is not supported"):
        Program(tmp_path / "it.mlpackage")


def test_wrong_inputs_are_refused(tmp_path):
    program = Program(saved(tmp_path, weighted, floats(1, 64, 1, 4)))
    with pytest.raises(DraftError, match="takes x: missing or unknown: x, y"):
        program.run("main", {"y": random(1, 64, 1, 4)}, {})
    with pytest.raises(DraftError, match=r"x has shape \(1, 64, 1, 5\), not \(1, 64, 1, 4\)"):
        program.run("main", {"x": random(1, 64, 1, 5)}, {})
    with pytest.raises(DraftError, match="has no function prefill, but main"):
        program.run("prefill", {}, {})


DAMAGES = {
    "no manifest": lambda package: (package / "Manifest.json").unlink(),
    "no weights": lambda package: shutil.rmtree(package / "Data/com.apple.CoreML/weights"),
    "cut weights": lambda package: cut(package / "Data/com.apple.CoreML/weights/weight.bin"),
    "cut program": lambda package: cut(package / "Data/com.apple.CoreML/model.mlmodel"),
    "another program": lambda package: (package / "Data/com.apple.CoreML/model.mlmodel").write_bytes(b""),
}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_package_is_refused(tmp_path, damage):
    package = saved(tmp_path, weighted, floats(1, 64, 1, 4))
    DAMAGES[damage](package)
    with pytest.raises(DraftError, match=r"it\.mlpackage cannot be read .*: convert the draft again") as refused:
        Program(package)
    assert "\n" not in str(refused.value)


def test_no_package_is_refused(tmp_path):
    with pytest.raises(DraftError, match=r"none\.mlpackage is no \.mlpackage"):
        Program(tmp_path / "none.mlpackage")


def test_without_coremltools_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "coremltools.converters.mil.frontend.milproto", None)
    with pytest.raises(DraftError, match=r"pip install 'mirror-mlx\[coreml\]'"):
        Program(tmp_path / "it.mlpackage")


@pytest.mark.parametrize("used", [1, 3, 8, 9, 16])
def test_softmax_leaves_out_what_masks_leave_out(used):
    """With rows that see more and less, and with what is not a number."""
    random = np.random.default_rng(0)
    scores = random.standard_normal((2, 4, 16)).astype(np.float32)
    scores[..., used:] -= 1e4
    scores[0, 1, min(1, used - 1) + 1 :] -= 1e4
    softmax = program_exponentials.softmax(-1)
    found = np.array(softmax(mx.array(scores)))
    wanted = np.exp(scores - scores.max(-1, keepdims=True))
    wanted /= wanted.sum(-1, keepdims=True)
    assert np.allclose(found, wanted, atol=1e-6)
    assert (found[..., used:] == 0).all()
    scores[1, 2, 12] = np.nan
    assert np.isnan(np.array(softmax(mx.array(scores)))[1, 2]).all()
