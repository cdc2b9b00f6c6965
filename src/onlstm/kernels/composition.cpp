// The fused CPU kernel behind composition.py: the cell of Ordered Memory, from the lowest slot of a stack to the highest,
// forward and backward. It computes what `OrderedMemory.compose` computes under autograd, with its names. Rows (formulas)
// do not touch each other, so threads share rows and go through all slots alone. Factors of products are of type T, like
// all else, or (E, narrow) of bfloat16; those of the weights' gradients go where the caller wants them, for one product over a
// whole pass. Order of this file: forward, backward, host functions, registration.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cmath>
#include <memory>

#include "bfloat16.h"
#include "exponential.h"
#include "random.h"

namespace {

using at::Tensor;
using std::optional;

void expect_like(const Tensor& like, const char* name, const Tensor& x, at::IntArrayRef shape) {
  TORCH_CHECK(x.is_contiguous() && x.device().is_cpu() && x.scalar_type() == like.scalar_type() && x.sizes() == shape, name,
              ": a contiguous tensor of size ", shape, " and type ", like.scalar_type(), " is needed, on the CPU");
}

template <typename T>
T* data(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

// A row of K numbers, an even number, as elements and back.
template <typename T, typename E>
void put(const T* row, int64_t K, E* to) {
  if constexpr (std::is_same_v<T, E>) std::copy_n(row, K, to);
  else round_row(row, K, to);
}
template <typename T, typename E>
void get(const E* row, int64_t K, T* to) {
  if constexpr (std::is_same_v<T, E>) std::copy_n(row, K, to);
  else at::vec::convert(reinterpret_cast<const at::BFloat16*>(row), to, K);
}

// A row of factors, and of what is saved beside them: the activated gates g_v, g_h, g_c, u and what was composed.
template <typename E>
E* row_of(const Tensor& x, int64_t r) {
  return data<E>(x) + r * (x.size(1) * x.element_size() / sizeof(E));
}

template <typename T>
INLINE inline Vec<T> sigmoid(Vec<T> x) {
  return Vec<T>(T(1)) / (Vec<T>(T(1)) + exponential(x.neg(), T(80)));
}

using Tensors = std::vector<Tensor>;

class Cell : public torch::CustomClassHolder {
 public:
  virtual Tensors forward(const Tensor& x, const Tensor& M, const Tensor& up, const optional<int64_t>& seed,
                          const Tensors& inputs) = 0;
  virtual Tensors backward(const Tensor& d, const Tensor& d_top, const Tensor& x, const Tensor& M, const Tensor& up,
                           const Tensor& M_hat, const optional<int64_t>& seed, const Tensor& hidden, const Tensors& saved,
                           const Tensors& gradients) = 0;
};

template <typename T, typename E>
class CellOf final : public Cell {
  const int64_t D, kept;  // numbers of what is saved in a row, an even number
  const Packed<T, E> up_1, up_2, down_1, down_2;
  const Tensor b_1, b_2, gain, shift;
  const T eps, scale;
  const uint32_t least;  // a random number below it drops a number

  // Weights for products with their rows or, transposed, their columns.
  static Packed<T, E> packed(const Tensor& W, bool transposed) {
    return {W.const_data_ptr<T>(), W.size(1), W.size(transposed ? 1 : 0), W.size(transposed ? 0 : 1), transposed};
  }
  // C (rows x N) = init + A B, for rows of factors
  static void multiply_by(const Packed<T, E>& B, int64_t rows, const E* A, T* C, const T* init = nullptr) {
    B.times(rows, {A, Element<E>::count(B.K), 1}, C, B.N, init);
  }

  // The rows, if all is as it should be.
  int64_t check(const Tensor& x, const Tensor& M, const Tensor& up) const {
    TORCH_CHECK(M.dim() == 3, "M: slots (R, n, D) are needed");
    expect("x", x, {M.size(0), D});
    expect("M", M, {M.size(0), M.size(1), D});
    expect("up", up, {M.size(0), M.size(1)});
    return M.size(0);
  }
  void expect(const char* name, const Tensor& x, at::IntArrayRef shape) const { expect_like(gain, name, x, shape); }

  static constexpr bool narrow = !std::is_same_v<T, E>;
  Tensor room(int64_t rows, int64_t K) const {
    return at::empty({rows, K}, gain.options().dtype(narrow ? at::kBFloat16 : gain.scalar_type()));
  }
  void expect_room(const char* name, const Tensor& x, int64_t rows, int64_t K) const {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == (narrow ? at::kBFloat16 : gain.scalar_type()) &&
                    x.sizes() == at::IntArrayRef({rows, K}), name, ": room for ", rows, " rows of ", K, " factors is needed");
  }

  // Run work(first, last) over the rows, on all threads; so many together as a product keeps in the cache.
  template <typename F>
  void by_rows(int64_t R, const F& work) const {
    const int64_t most = Block<E>::rows(0);  // of A
    at::parallel_for(0, R, 16, [&](int64_t begin, int64_t end) {
      const int64_t blocks = (end - begin + most - 1) / most;
      for (int64_t i = 0; i < blocks; ++i) work(begin + (end - begin) * i / blocks, begin + (end - begin) * (i + 1) / blocks);
    });
  }

  // Numbers of row r of slot k that are left, scaled. Which they are follows from the seed, whoever asks in which order.
  void drop(T* row, int64_t n, int64_t seed, int64_t k, int64_t r, uint32_t layer) const {
    drop_out(row, n, hash(seed, k, r) + layer, least, scale);
  }

 public:
  CellOf(const Tensor& w_1, const Tensor& b_1, const Tensor& w_2, const Tensor& b_2, const Tensor& gain, const Tensor& shift,
         double eps, double p)
      : D(gain.numel()), kept((5 * D + 1) / 2 * 2), up_1(packed(w_1, true)), up_2(packed(w_2, true)), down_1(packed(w_1, false)),
        down_2(packed(w_2, false)), b_1(b_1), b_2(b_2), gain(gain), shift(shift), eps(eps), scale(1 / (1 - p)),
        least(least_kept(p)) {}

  // ------------------------------------------------------------------------------------------------------------- forward

  // `inputs`: room for those of the two layers, n R rows, if there will be a backward pass.
  Tensors forward(const Tensor& x, const Tensor& M, const Tensor& up, const optional<int64_t>& seed,
                  const Tensors& inputs) override {
    const bool save = !inputs.empty();
    const int64_t R = check(x, M, up), n = M.size(1), rows = save ? n * R : R;
    const Tensor M_hat = at::empty({R, n, D}, x.options()), deviation = at::empty({rows}, x.options());
    const Tensor input = save ? inputs[0] : room(rows, 2 * D), hidden = save ? inputs[1] : room(rows, 4 * D);
    const Tensor saved = room(save ? rows : 0, kept);
    expect_room("input", input, rows, 2 * D);
    expect_room("hidden", hidden, rows, 4 * D);
    by_rows(R, [&](int64_t first, int64_t last) {
      std::vector<T> v((last - first) * D), row(kept), wide((last - first) * 4 * D);
      std::copy_n(data<T>(x) + first * D, v.size(), v.data());
      for (int64_t k = 0; k < n; ++k) {
        const int64_t top = save ? k * R : 0;
        for (int64_t r = first; r < last; ++r) {
          std::copy_n(v.data() + (r - first) * D, D, row.data());
          std::copy_n(data<T>(M) + (r * n + k) * D, D, row.data() + D);
          if (seed) drop(row.data(), 2 * D, *seed, k, r, 0);
          put(row.data(), 2 * D, row_of<E>(input, top + r));
        }
        multiply_by(up_1, last - first, row_of<E>(input, top + first), wide.data(), data<T>(b_1));
        for (int64_t r = first; r < last; ++r) {
          T* h = wide.data() + (r - first) * 4 * D;
          for (int64_t j = 0; j < 4 * D; ++j) h[j] = h[j] > 0 ? h[j] : T(0);
          if (seed) drop(h, 4 * D, *seed, k, r, 1);
          put(h, 4 * D, row_of<E>(hidden, top + r));
        }
        multiply_by(up_2, last - first, row_of<E>(hidden, top + first), wide.data(), data<T>(b_2));
        for (int64_t r = first; r < last; ++r) {
          const T *h = data<T>(M) + (r * n + k) * D, *x_r = data<T>(x) + r * D, share = data<T>(up)[r * n + k];
          T *to = v.data() + (r - first) * D, *norm = row.data() + 4 * D;
          std::copy_n(wide.data() + (r - first) * 4 * D, 4 * D, row.data());
          compose(row.data(), to, h, norm, data<T>(deviation) + top + r);
          if (save) put(row.data(), kept, row_of<E>(saved, top + r));
          const T *scales = data<T>(gain), *shifts = data<T>(shift);
          for (int64_t j = 0; j < D; ++j) to[j] = x_r[j] + share * (norm[j] * scales[j] + shifts[j] - x_r[j]);
          std::copy_n(to, D, data<T>(M_hat) + (r * n + k) * D);
        }
      }
    });
    return {M_hat, saved, deviation};
  }

  // Activate the gates g_v, g_h, g_c of a row; σ(g_v) v + σ(g_h) h + σ(g_c) u without its mean, over its deviation.
  void compose(T* g, const T* v, const T* h, T* normed, T* deviation) const {
    constexpr int64_t L = Vec<T>::size();
    Vec<T> sums(T(0));
    for (int64_t j = 0; j < D; j += L) {
      const int64_t count = std::min(L, D - j);
      const auto gate = [&](int64_t part) {
        const Vec<T> y = sigmoid(Vec<T>::loadu(g + part * D + j, count));
        y.store(g + part * D + j, count);
        return y;
      };
      const auto load = [&](const T* from) { return Vec<T>::loadu(from + j, count); };
      const Vec<T> sum = gate(0) * load(v) + gate(1) * load(h) + gate(2) * load(g + 3 * D);
      sum.store(normed + j, count);
      sums = sums + (count == L ? sum : Vec<T>::set(Vec<T>(T(0)), sum, count));
    }
    const T mean = at::vec::vec_reduce_all<T>([](Vec<T> a, Vec<T> b) { return a + b; }, sums) / D;
    T square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t j = 0; j < D; ++j) {
      normed[j] -= mean;
      square += normed[j] * normed[j];
    }
    *deviation = 1 / std::sqrt(square / D + eps);
    for (int64_t j = 0; j < D; ++j) normed[j] *= *deviation;
  }

  // ------------------------------------------------------------------------------------------------------------ backward

  // d is the gradient of M_hat, d_top what is to be added to it for the highest slot. `gradients`: room for those of what
  // the two layers return.
  Tensors backward(const Tensor& d, const Tensor& d_top, const Tensor& x, const Tensor& M, const Tensor& up,
                   const Tensor& M_hat, const optional<int64_t>& seed, const Tensor& hidden, const Tensors& saved,
                   const Tensors& gradients) override {
    const int64_t R = check(x, M, up), n = M.size(1);
    TORCH_CHECK(saved.size() == 2 && gradients.size() == 2, "backward: two saved tensors and two gradients are needed");
    const Tensor &gates = saved[0], &deviation = saved[1], &d_hidden = gradients[0], &d_output = gradients[1];
    for (const Tensor& rows : {hidden, d_hidden, d_output}) expect_room("rows", rows, n * R, 4 * D);
    expect_room("gates", gates, n * R, kept);
    expect("gradient", d, {R, n, D});
    expect("gradient of the top", d_top, {R, D});
    const Tensor d_x = at::zeros({R, D}, x.options()), d_M = at::empty({R, n, D}, x.options());
    const Tensor d_up = at::empty({R, n}, x.options()), totals = at::zeros({at::get_num_threads(), 10 * D}, x.options());
    by_rows(R, [&](int64_t first, int64_t last) {
      std::vector<T> wide((last - first) * 4 * D), row(kept);
      std::vector<T> d_v(data<T>(d_top) + first * D, data<T>(d_top) + last * D);
      T* sums = data<T>(totals) + at::get_thread_num() * 10 * D;  // over rows: gradients of gain, shift, b_1 and b_2
      for (int64_t k = n - 1; k >= 0; --k) {
        const int64_t top = k * R;
        for (int64_t r = first; r < last; ++r) {
          const T *v = k ? data<T>(M_hat) + (r * n + k - 1) * D : data<T>(x) + r * D, *h = data<T>(M) + (r * n + k) * D;
          const T* d_out = data<T>(d) + (r * n + k) * D;
          T *d_r = d_v.data() + (r - first) * D, *d_h = data<T>(d_M) + (r * n + k) * D;
          for (int64_t j = 0; j < D; ++j) d_r[j] += d_out[j];
          get(row_of<E>(gates, top + r), kept, row.data());
          data<T>(d_up)[r * n + k] = backward_norm(data<T>(up)[r * n + k], data<T>(x) + r * D, row.data() + 4 * D,
                                                   data<T>(deviation)[top + r], d_r, data<T>(d_x) + r * D, sums);
          backward_gates(row.data(), v, h, d_r, d_h);
          for (int64_t j = 0; j < 4 * D; ++j) sums[6 * D + j] += row[j];
          put(row.data(), 4 * D, row_of<E>(d_output, top + r));
        }
        multiply_by(down_2, last - first, row_of<E>(d_output, top + first), wide.data());
        for (int64_t r = first; r < last; ++r) {
          T* d_r = wide.data() + (r - first) * 4 * D;
          const T factor = seed ? scale : T(1);
          get(row_of<E>(hidden, top + r), 4 * D, row.data());
          for (int64_t j = 0; j < 4 * D; ++j) sums[2 * D + j] += d_r[j] = row[j] > 0 ? d_r[j] * factor : T(0);
          put(d_r, 4 * D, row_of<E>(d_hidden, top + r));
        }
        multiply_by(down_1, last - first, row_of<E>(d_hidden, top + first), wide.data());
        for (int64_t r = first; r < last; ++r) {
          T *d_in = wide.data() + (r - first) * 2 * D, *d_r = d_v.data() + (r - first) * D, *d_h = data<T>(d_M) + (r * n + k) * D;
          if (seed) drop(d_in, 2 * D, *seed, k, r, 0);
          for (int64_t j = 0; j < D; ++j) {
            d_r[j] += d_in[j];
            d_h[j] += d_in[D + j];
          }
        }
      }
      T* to = data<T>(d_x) + first * D;
      for (int64_t j = 0; j < (last - first) * D; ++j) to[j] += d_v[j];
    });
    return {d_x, d_M, d_up, totals.sum(0)};
  }

  // From the gradient of a slot, x + share (norm - x), to that of the composition before its norm, in its place; added are
  // those of x, gain and shift, returned is that of the share.
  T backward_norm(T share, const T* x, const T* normed, T deviation, T* d, T* d_x, T* sums) const {
    const T *scales = data<T>(gain), *shifts = data<T>(shift);
    T d_share = 0, mean = 0, along = 0;
#pragma omp simd reduction(+ : d_share, mean, along)
    for (int64_t j = 0; j < D; ++j) {
      d_share += d[j] * (normed[j] * scales[j] + shifts[j] - x[j]);
      d_x[j] += (1 - share) * d[j];
      d[j] *= share;
      sums[j] += d[j] * normed[j];
      sums[D + j] += d[j];
      d[j] *= scales[j];
      mean += d[j];
      along += d[j] * normed[j];
    }
    mean /= D;
    along /= D;
    for (int64_t j = 0; j < D; ++j) d[j] = deviation * (d[j] - mean - normed[j] * along);
    return d_share;
  }

  // From the gradient d of the composition to those of v (in its place), h and the second layer's output (in that of g).
  void backward_gates(T* g, const T* v, const T* h, T* d, T* d_h) const {
#pragma omp simd
    for (int64_t j = 0; j < D; ++j) {
      const T g_v = g[j], g_h = g[D + j], g_c = g[2 * D + j], u = g[3 * D + j];
      g[j] = d[j] * v[j] * g_v * (1 - g_v);
      g[D + j] = d[j] * h[j] * g_h * (1 - g_h);
      g[2 * D + j] = d[j] * u * g_c * (1 - g_c);
      g[3 * D + j] = d[j] * g_c;
      d_h[j] = d[j] * g_h;
      d[j] *= g_v;
    }
  }
};

// ---------------------------------------------------------------------------------------------------------------- host

c10::intrusive_ptr<Cell> cell(const Tensor& w_1, const Tensor& b_1, const Tensor& w_2, const Tensor& b_2, const Tensor& gain,
                              const Tensor& shift, double eps, double p, bool narrow) {
  const int64_t D = gain.numel();
  expect_like(w_1, "w_1", w_1, {4 * D, 2 * D});
  expect_like(w_1, "b_1", b_1, {4 * D});
  expect_like(w_1, "w_2", w_2, {4 * D, 4 * D});
  expect_like(w_1, "b_2", b_2, {4 * D});
  expect_like(w_1, "gain", gain, {D});
  expect_like(w_1, "shift", shift, {D});
  if (w_1.scalar_type() == at::kDouble) return c10::make_intrusive<CellOf<double, double>>(w_1, b_1, w_2, b_2, gain, shift, eps, p);
  TORCH_CHECK(w_1.scalar_type() == at::kFloat, "only for float32 and float64");
  TORCH_CHECK(!narrow || has_bfloat16, "this processor does not multiply in bfloat16");
  if (narrow) return c10::make_intrusive<CellOf<float, Narrow>>(w_1, b_1, w_2, b_2, gain, shift, eps, p);
  return c10::make_intrusive<CellOf<float, float>>(w_1, b_1, w_2, b_2, gain, shift, eps, p);
}

}  // namespace

TORCH_LIBRARY(onlstm_composition, m) {
  m.class_<Cell>("Cell").def(torch::init(&cell)).def("forward", &Cell::forward).def("backward", &Cell::backward);
  m.def("has_bfloat16() -> bool", [] { return has_bfloat16; });
}
