"""cell.py against the paper, the golden files and itself. Shapes are checked by jaxtyping, here only."""

import pytest
import torch
from beartype import beartype
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from torch.testing import assert_close

from golden_files import load_golden
from onlstm import cell

typed = jaxtyped(typechecker=beartype)
cumax, step, scan = typed(cell.cumax), typed(cell.step), typed(cell.scan)


@given(st.lists(st.floats(-1000, 1000), min_size=1, max_size=40))
def test_cumax_rises_from_0_to_1(logits):
    gate = cumax(torch.tensor(logits, dtype=torch.float64))
    assert (gate >= 0).all()
    assert (gate.diff() >= 0).all()
    assert gate[-1].item() == pytest.approx(1, abs=1e-12)


def test_cumax_is_the_originals():
    case = load_golden("cell/cumax.npz")
    assert_close(cumax(case["x"]), case["y"], atol=1e-12, rtol=0)


def test_cumax_sums_half_precision_in_float32():
    logits = torch.zeros(2000, dtype=torch.bfloat16)
    assert cumax(logits)[-1].item() == pytest.approx(1, abs=1e-5)  # bfloat16 sums would stall at 1/8


def test_one_step_is_the_originals():
    case = load_golden("cell/cell_step.npz")
    weights = [case[f"w.{name}"] for name in ("ih.weight", "hh.weight", "ih.bias", "hh.bias")]
    gates = case["x"] @ weights[0].T + case["h0"] @ weights[1].T + weights[2] + weights[3]
    h, c, master = step(gates, case["c0"].flatten(1), 3)
    assert_close(h, case["hy"], atol=1e-12, rtol=0)
    assert_close(c, case["cy"].flatten(1), atol=1e-12, rtol=0)
    distances = cell.distances(master)
    assert_close(distances.forget, case["dist_forget"], atol=1e-12, rtol=0)
    assert_close(distances.input, case["dist_in"], atol=1e-12, rtol=0)


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1))
def test_both_forms_of_equations_12_and_13_are_equal(gates):
    f, i, f_m, i_m = torch.tensor(gates, dtype=torch.float64).T
    omega = f_m * i_m
    assert_close(f * omega + (f_m - omega), f_m * (f * i_m + 1 - i_m), atol=1e-15, rtol=1e-14)
    assert_close(i * omega + (i_m - omega), i_m * (i * f_m + 1 - f_m), atol=1e-15, rtol=1e-14)


def test_step_follows_the_second_form_too():
    torch.manual_seed(0)
    D, C = 12, 3
    gates, c_prev = torch.randn(5, 2 * D // C + 4 * D, dtype=torch.float64), torch.randn(5, D, dtype=torch.float64)
    h, c, (f_m, i_m) = step(gates, c_prev, C)
    _, _, o, g, i, f = gates.split((D // C, D // C, D, D, D, D), -1)
    f_m, i_m = f_m.repeat_interleave(C, -1), i_m.repeat_interleave(C, -1)
    f_hat, i_hat = f_m * (f.sigmoid() * i_m + 1 - i_m), i_m * (i.sigmoid() * f_m + 1 - f_m)
    assert_close(c, f_hat * c_prev + i_hat * g.tanh())
    assert_close(h, o.sigmoid() * c.tanh())


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=12))
def test_distances_are_the_expected_split_points(logits):
    """Equation (15) over D_m, split points counted from 0, and the same expectation for the input gate."""
    logits = torch.tensor(logits, dtype=torch.float64)
    M = len(logits)
    expected = (torch.arange(M) * logits.softmax(-1)).sum() / M
    distances = cell.distances(cell.master_gates(logits, logits, M))
    assert_close(distances.forget, expected)
    assert_close(distances.input, expected)


@pytest.mark.parametrize("free", [False, True])
def test_the_last_chunk_is_dead_unless_freed(free):
    torch.manual_seed(0)
    D, C, T, B = 12, 3, 6, 2
    G = 2 * (D // C + free) + 4 * D
    x_gates, w_hh = torch.randn(T * B, G, dtype=torch.float64), torch.randn(G, D, dtype=torch.float64)
    zero = torch.zeros(B, D, dtype=torch.float64)
    h, _, _, gates = scan(x_gates, w_hh, zero, zero, C, [B] * T)
    assert (h[:, -C:].abs() > 1e-3).all() if free else (h[:, -C:].abs() < 1e-14).all()
    assert (h[:, :-C].abs() > 1e-5).all()
    assert gates.forget.shape == (T * B, D // C)
    if not free:  # and what stood there stands there still
        start = torch.randn(B, D, dtype=torch.float64)
        assert_close(scan(x_gates, w_hh, zero, start, C, [B] * T).c_n[:, -C:], start[:, -C:])


def test_scan_keeps_the_state_of_sequences_that_have_ended():
    torch.manual_seed(0)
    D, C, lengths = 6, 2, [4, 2, 1]
    G, sizes = 2 * D // C + 4 * D, [3, 2, 1, 1]
    x_gates, w_hh = torch.randn(sum(sizes), G, dtype=torch.float64), torch.randn(G, D, dtype=torch.float64)
    h0, c0 = torch.randn(2, 3, D, dtype=torch.float64)
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    for reverse in (False, True):
        together = scan(x_gates, w_hh, h0, c0, C, sizes, reverse)
        for r, length in enumerate(lengths):
            rows = [starts[t] + r for t in range(length)]
            alone = scan(x_gates[rows], w_hh, h0[[r]], c0[[r]], C, [1] * length, reverse)
            assert_close(together.h[rows], alone.h)
            assert_close(together.h_n[[r]], alone.h_n)
            assert_close(together.c_n[[r]], alone.c_n)


def test_gates_are_listed_in_the_originals_order():
    assert cell.GATES == ("i_m", "f_m", "o", "g", "i", "f")
