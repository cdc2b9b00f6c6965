// The CPU kernel behind dropout.py: numbers are dropped as a seed and their places say, so that no mask lies in memory.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "random.h"

namespace {

using at::Tensor;

Tensor drop(const Tensor& x, double p, int64_t seed) {
  TORCH_CHECK(0 <= p && p < 1, "p: from 0 to less than 1 is needed");
  const Tensor out = x.contiguous().clone();
  constexpr int64_t block = 1 << 12;
  const int64_t n = out.numel();
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "drop", [&] {
    scalar_t* first = out.data_ptr<scalar_t>();
    at::parallel_for(0, (n + block - 1) / block, 8, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        drop_out<scalar_t>(first + k * block, std::min(block, n - k * block), hash(seed, k >> 32, k), least_kept(p), 1 / (1 - p));
    });
  });
  return out;
}

}  // namespace

TORCH_LIBRARY(onlstm_dropout, m) { m.def("drop(Tensor x, float p, int seed) -> Tensor"); }
TORCH_LIBRARY_IMPL(onlstm_dropout, CPU, m) { m.impl("drop", &drop); }
