"""Layers against the numbers the original code printed: outputs, states, distances, loss and every gradient."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from golden_files import GOLDEN, golden_cases, load_golden
from kernel_inputs import interpreted, triton_on_cpu
from onlstm import ONLSTM, cell
from onlstm.kernels import ops

SHARED = Path(__file__).parents[2] / "shared" / "golden"
STORED = [case for case in golden_cases() if case["full_weights_stored"]]
WHOLE = [case for case in STORED if case["chunk"] < case["layer_sizes"][1]]
DEGENERATE = [case for case in STORED if case["chunk"] == case["layer_sizes"][1]]
PARAMETERS = ("ih.weight", "hh.weight", "ih.bias", "hh.bias")
TRITON = pytest.param("triton", marks=interpreted)
exact = {"atol": 1e-12, "rtol": 0}


@pytest.fixture
def backend(request):
    if request.param != "triton":
        yield request.param
    else:
        with triton_on_cpu():
            yield "fused"


@pytest.mark.data
def test_the_copies_here_are_the_originals():
    if not SHARED.exists():
        pytest.skip("needs ../shared/golden")
    for name in ("cell_index.json", *(case["file"] for case in golden_cases())):
        assert (GOLDEN / name).read_bytes() == (SHARED / name).read_bytes(), name


def build(case, arrays, backend):
    """The case as a chain of one-layer ONLSTMs; the original's weights are copied block for block."""
    layers = []
    for k, sizes in enumerate(zip(case["layer_sizes"], case["layer_sizes"][1:], strict=False)):
        layer = ONLSTM(
            *sizes,
            dtype=torch.float64,
            chunk_size=case["chunk"],
            weight_dropout=case["dropconnect"],
            weight_dropout_scale="original",
            backend=backend,
        )
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        layer.load_state_dict({name: arrays[f"w.l{k}.{old}"] for name, old in zip(names, PARAMETERS, strict=True)})
        layers.append(layer.train(case["mode"] == "train"))
    return layers


@pytest.mark.parametrize("backend", ["eager", "fused", TRITON], indirect=True)
@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case["file"])
def test_layers(case, backend):
    arrays = load_golden(case["file"])
    rows = arrays["x"].clone().requires_grad_()
    x, loss, leaves = rows, 0, {"x": rows}
    for k, layer in enumerate(build(case, arrays, backend)):
        state = [arrays[f"l{k}.{name}0"].flatten(1)[None].clone().requires_grad_() for name in "hc"]
        mask = [1 - arrays[f"l{k}.hh.dropmask"]] if f"l{k}.hh.dropmask" in arrays else None
        x, (h_n, c_n), distances = layer.scan(x, tuple(state), weight_mask=mask)
        results = {
            "out": x,
            "hT": h_n[0],
            "cT": c_n[0],
            "dist_forget": distances.forget[0],
            "dist_in": distances.input[0],
        }
        for name, value in results.items():
            expected = arrays[f"l{k}.{name}"]
            assert_close(value, expected.reshape(value.shape), msg=lambda text, name=name: f"{name}: {text}", **exact)
            if name != "out":
                loss = loss + (arrays[f"coef.l{k}.{name}"].reshape(value.shape) * value).sum()
        leaves |= {f"l{k}.h0": state[0], f"l{k}.c0": state[1]}
        leaves |= {f"l{k}.{old}": p for old, p in zip(PARAMETERS, layer.parameters(), strict=True)}
    loss = loss + (arrays["coef.out"] * x).sum()
    assert_close(loss, arrays["loss"], **exact)
    loss.backward()
    for name, leaf in leaves.items():
        expected = arrays[f"grad.{name}"].reshape(leaf.shape)
        assert_close(leaf.grad, expected, msg=lambda text, name=name: f"gradient of {name}: {text}", **exact)


@pytest.mark.parametrize("backend", ["fused", TRITON], indirect=True)
@pytest.mark.parametrize("case", DEGENERATE, ids=lambda case: case["file"])
def test_a_single_chunk_is_refused_by_the_layer_but_known_to_the_functions(case, backend):
    arrays = load_golden(case["file"])
    sizes, chunk = case["layer_sizes"], case["chunk"]
    with pytest.raises(ValueError, match="can never be written; nearest that work: 6"):
        ONLSTM(*sizes, chunk_size=chunk)
    x, bias = arrays["x"].flatten(0, 1), arrays["w.l0.ih.bias"] + arrays["w.l0.hh.bias"]
    w_ih, w_hh, h0, c0 = (arrays[name] for name in ("w.l0.ih.weight", "w.l0.hh.weight", "l0.h0", "l0.c0"))
    eager = cell.scan(x @ w_ih.T + bias, w_hh, h0, c0.flatten(1), chunk, [case["B"]] * case["T"])
    fused = ops.scan(x, w_ih, w_hh, bias, h0, c0.flatten(1), None, chunk)
    for h, h_n, c_n in (eager[:3], fused[:3]):
        assert_close(h.view(case["T"], case["B"], -1), arrays["l0.out"], **exact)
        assert_close(h_n, arrays["l0.hT"], **exact)
        assert_close(c_n, arrays["l0.cT"].flatten(1), **exact)


@pytest.mark.parametrize("backend", ["fused", TRITON], indirect=True)
def test_the_papers_size(backend):
    """400 -> 1150, chunk 10: weights, states (h0 in ±0.7, c0 in ±0.9) redrawn; gradients by sample and norm."""
    (case,) = [case for case in golden_cases() if not case["full_weights_stored"]]
    arrays, draw = load_golden(case["file"]), np.random.RandomState(case["seed"])
    scale, (size, D), T, B = case["weight_scale"], case["layer_sizes"], case["T"], case["B"]

    def uniform(bound, *shape):
        return torch.from_numpy(draw.uniform(-bound, bound, shape))

    layer = ONLSTM(size, D, dtype=torch.float64, chunk_size=case["chunk"], backend=backend)
    G = layer.weight_hh_l0.shape[0]
    drawn = {"weight_ih_l0": (G, size), "bias_ih_l0": (G,), "weight_hh_l0": (G, D), "bias_hh_l0": (G,)}
    layer.load_state_dict({name: uniform(scale, *shape) for name, shape in drawn.items()})
    x = uniform(case["x_scale"], T, B, size).requires_grad_()
    assert_close(x.sum().detach(), arrays["xsum"][0], atol=1e-9, rtol=0)
    state = [uniform(bound, B, D).requires_grad_() for bound in (0.7, 0.9)]
    out, (h_n, c_n), distances = layer.scan(x, (state[0][None], state[1][None]))
    found = {"out": out, "hT": h_n[0], "cT": c_n[0], "dist_forget": distances.forget[0], "dist_in": distances.input[0]}
    for name, value in found.items():
        assert_close(value, arrays[f"l0.{name}"].reshape(value.shape), **exact)
    order = ("out", "hT", "cT", "dist_forget", "dist_in")
    loss = sum((uniform(1.0, *found[name].shape) * found[name]).sum() for name in order)
    assert_close(loss, arrays["loss"], atol=1e-11, rtol=0)
    loss.backward()
    names = ("ih.weight", "hh.weight", "ih.bias", "hh.bias")
    leaves = {"x": x, "l0.h0": state[0], "l0.c0": state[1]}
    leaves |= {f"l0.{old}": p for old, p in zip(names, layer.parameters(), strict=True)}
    for name, leaf in leaves.items():
        samples = leaf.grad.flatten()[arrays[f"gradidx.{name}"]]
        assert_close(samples, arrays[f"gradval.{name}"], **exact)
        assert_close(leaf.grad.norm(), arrays[f"gradsum.{name}"][1], atol=1e-11, rtol=0)
