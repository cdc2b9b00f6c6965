// The CPU kernel behind factor.py: a matrix B, rearranged once, for any number of products A B, in float32 or with factors
// rounded to bfloat16. Both may be transposed: either the rows or the columns are contiguous. Threads share the rows of A.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "bfloat16.h"

namespace {

using at::Tensor;

// Whether columns are what is contiguous.
bool transposed(const char* name, const Tensor& x) {
  TORCH_CHECK(x.dim() == 2 && x.device().is_cpu() && x.scalar_type() == at::kFloat, name,
              ": a matrix of float32 numbers is needed, on the CPU");
  const bool rows = x.size(1) < 2 || x.stride(1) == 1, columns = x.size(0) < 2 || x.stride(0) == 1;
  TORCH_CHECK(rows || columns, name, ": neither rows nor columns are contiguous");
  return !rows;
}

class Second final : public torch::CustomClassHolder {
  const bool columns;
  const PackedFactor<float> B;

 public:
  Second(const Tensor& B, bool narrow)
      : columns(transposed("B", B)),
        B(B.const_data_ptr<float>(), B.stride(columns ? 1 : 0), B.size(0), B.size(1), columns, narrow) {}

  Tensor times(const Tensor& A, const std::optional<Tensor>& bias) const {
    const bool columns = transposed("A", A);
    const int64_t M = A.size(0), ld = A.stride(columns ? 1 : 0);
    TORCH_CHECK(A.size(1) == B.K, "A: ", B.K, " columns are needed, not ", A.size(1));
    TORCH_CHECK(!bias || (bias->is_contiguous() && bias->scalar_type() == at::kFloat && bias->numel() == B.N),
                "bias: ", B.N, " float32 numbers are needed");
    const float* first_row = bias ? bias->const_data_ptr<float>() : nullptr;
    const bool adds = columns || !B.K;  // to what is there
    const Tensor C = adds ? at::zeros({M, B.N}, A.options()) : at::empty({M, B.N}, A.options());
    if (adds && bias) C.copy_(bias->expand({M, B.N}));
    at::parallel_for(0, B.K ? M : 0, 16, [&](int64_t first, int64_t last) {
      const float* a = A.const_data_ptr<float>() + first * (columns ? 1 : ld);
      float* c = C.data_ptr<float>() + first * B.N;
      if (columns) B.add_transposed(last - first, a, ld, c, B.N);
      else B.times(last - first, a, ld, c, first_row);
    });
    return C;
  }
};

}  // namespace

TORCH_LIBRARY(onlstm_factor, m) {
  m.class_<Second>("Factor").def(torch::init<const Tensor&, bool>()).def("times", &Second::times);
  m.def("has_bfloat16() -> bool", [] { return has_bfloat16; });
}
