// The fused CPU kernel behind softmax.py: logits become the gradient of their mean cross entropy where they stand. A row is
// widened to float in a room of its own that the first-level caches hold; threads share rows, then columns, so their
// number changes no digit. Order of this file: a row, host function, registration.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "exponential.h"

namespace {

using at::Tensor;
using V = Vec<float>;
constexpr int64_t L = V::size();

// Replace logits z[0, N) by scale (softmax - one-hot of word); return -log softmax[word]. The room has whole vectors, of
// which those beyond N add e^-87 to a sum of 1 or more. What is not a number ends up in the result.
template <typename E>
float row(E* z, int64_t N, int64_t word, float scale, std::vector<float>& room) {
  float* x = room.data();
  at::vec::convert(z, x, N);
  V tops(x[0]), sums(0.f);
  const int64_t end = static_cast<int64_t>(room.size());
  for (int64_t n = 0; n < end; n += L) tops = at::vec::maximum(tops, V::loadu(x + n));
  const float top = at::vec::vec_reduce_all<float>([](V a, V b) { return at::vec::maximum(a, b); }, tops);
  const float right = x[word];
  for (int64_t n = 0; n < end; n += L) {
    const V power = exponential(V::loadu(x + n) - V(top), 87.f);
    power.store(x + n);
    sums = sums + power;
  }
  const float sum = at::vec::vec_reduce_all<float>([](V a, V b) { return a + b; }, sums);
  const V factor(scale / sum);
  for (int64_t n = 0; n < end; n += L) (V::loadu(x + n) * factor).store(x + n);
  x[word] -= scale;
  at::vec::convert(x, z, N);
  std::fill(x + N, x + end, -std::numeric_limits<float>::infinity());
  return std::log(sum) + top - right;
}

// Sum of columns [first, last) over all rows, row by row.
template <typename E>
void add_columns(const E* z, int64_t rows, int64_t N, int64_t first, int64_t last, float* sums) {
  std::vector<float> x(last - first);
  for (int64_t r = 0; r < rows; ++r) {
    at::vec::convert(z + r * N + first, x.data(), last - first);
    for (int64_t n = first; n < last; ++n) sums[n] += x[n - first];
  }
}

template <typename E>
void whole(const Tensor& logits, const Tensor& words, float scale, const Tensor& nll, const Tensor& d_bias) {
  const int64_t rows = logits.size(0), N = logits.size(1);
  E* z = logits.data_ptr<E>();
  const int64_t* word = words.data_ptr<int64_t>();
  at::parallel_for(0, rows, 8, [&](int64_t first, int64_t last) {
    std::vector<float> room((N + L - 1) / L * L, -std::numeric_limits<float>::infinity());
    for (int64_t r = first; r < last; ++r) nll.data_ptr<float>()[r] = row(z + r * N, N, word[r], scale, room);
  });
  at::parallel_for(0, N, 512, [&](int64_t first, int64_t last) {
    add_columns(z, rows, N, first, last, d_bias.data_ptr<float>());
  });
}

std::tuple<Tensor, Tensor> cross_entropy_(Tensor& logits, const Tensor& words, double scale) {
  const int64_t rows = logits.size(0), N = logits.size(1);
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && N > 0, "logits: a contiguous matrix is needed");
  TORCH_CHECK(words.scalar_type() == at::kLong && words.is_contiguous() && words.dim() == 1 && words.size(0) == rows,
              "words: an int64 vector of one word per row is needed");
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t word = words.data_ptr<int64_t>()[r];
    TORCH_CHECK_INDEX(word >= 0 && word < N, "word ", word, " is out of bounds for ", N, " logits");
  }
  const Tensor nll = at::empty({rows}, words.options().dtype(at::kFloat)), d_bias = at::zeros({N}, nll.options());
  if (logits.scalar_type() == at::kFloat) whole<float>(logits, words, scale, nll, d_bias);
  else if (logits.scalar_type() == at::kBFloat16) whole<at::BFloat16>(logits, words, scale, nll, d_bias);
  else TORCH_CHECK(false, "logits: float32 or bfloat16 is needed");
  return {nll, d_bias};
}

}  // namespace

TORCH_LIBRARY(onlstm_softmax, m) {
  m.def("cross_entropy_(Tensor(a!) logits, Tensor words, float scale) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(onlstm_softmax, CPU, m) { m.impl("cross_entropy_", &cross_entropy_); }
