// Products whose factors are rounded to bfloat16 and whose sums stay in float, for processors that have an instruction for
// them: twice the speed at three significant digits. The processor multiplies pairs along k, so the element of such a
// factor is a pair; what else a product needs is in product.h. At the end, a matrix packed once, of elements of either kind.
#pragma once
#include <optional>

#include "product.h"

#if defined(__AVX512BF16__) && defined(CPU_CAPABILITY_AVX512)
#include <immintrin.h>

namespace {

constexpr bool has_bfloat16 = true;
using Pair = uint32_t;  // of numbers k and k + 1; at an odd end, of the last one and zero
using Narrow = Pair;    // what narrow factors are made of

template <>
struct Element<Pair> {
  using Sum = float;
  using Lanes = __m512bh;
  static constexpr int64_t count(int64_t numbers) { return (numbers + 1) / 2; }
  static INLINE Lanes load(const Pair* from) { return (__m512bh)_mm512_loadu_si512(from); }
  static INLINE Lanes same(Pair x) { return (__m512bh)_mm512_set1_epi32(x); }
  static INLINE Vec<float> multiply_add(Lanes a, Lanes b, Vec<float> sum) { return _mm512_dpbf16_ps(sum, a, b); }
};

inline __mmask16 lanes(int64_t count) { return count >= 16 ? 0xffff : count > 0 ? (1u << count) - 1 : 0; }
// Up to 32 numbers: 16 pairs of neighbours.
inline __m512i rounded(const float* x, int64_t count) {
  const __m512 low = _mm512_maskz_loadu_ps(lanes(count), x), high = _mm512_maskz_loadu_ps(lanes(count - 16), x + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}
// 16 numbers of one row and 16 of the next: pairs of rows.
inline __m512i paired(__m256i row, __m256i next) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(row), _mm512_slli_epi32(_mm512_cvtepu16_epi32(next), 16));
}

// A row of A.
inline void round_row(const float* x, int64_t K, Pair* to) {
  for (int64_t k = 0; k < K; k += 32) _mm512_mask_storeu_epi32(to + k / 2, lanes((K - k + 1) / 2), rounded(x + k, K - k));
}

// Two rows (the second may be null) to a row of pairs: to[j] holds row[j] and next[j], for j < N; zeros up to `width`.
inline void pair_rows(const float* row, const float* next, int64_t N, int64_t width, Pair* to) {
  for (int64_t j = 0; j < width; j += 16) {
    const __mmask16 mask = lanes(N - j);
    const __m256i first = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, row + j));
    const __m256i second = next ? (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, next + j)) : __m256i{};
    _mm512_mask_storeu_epi32(to + j, lanes(width - j), paired(first, second));
  }
}
// The same of rounded rows, of N numbers each (an even number).
inline void pair_rows(const Pair* row, const Pair* next, int64_t N, Pair* to) {
  for (int64_t j = 0; j < N; j += 16) {
    const __mmask8 mask = lanes((N - j) / 2);
    const __m256i second = next ? _mm256_maskz_loadu_epi32(mask, next + j / 2) : __m256i{};
    _mm512_mask_storeu_epi32(to + j, lanes(N - j), paired(_mm256_maskz_loadu_epi32(mask, row + j / 2), second));
  }
}

// As in product.h: panels [first, last) of the K x N matrix B, in pairs along k.
template <bool transposed, typename F>
void pack(const float* B, int64_t ldb, int64_t K, int64_t N, int64_t first, int64_t last, Pair* packed, const F& at) {
  constexpr int64_t W = Block<Pair>::width, S = Square<Pair>::size;
  const int64_t pairs = Element<Pair>::count(K);
  for (int64_t p = first; p < last; ++p) {
    Pair* to = packed + p * pairs * W;
    const int64_t n0 = p * W, n = std::min(W, N - n0), w = vectors_of<Pair>(p, N) * Block<Pair>::lanes;
    if constexpr (!transposed) {
      for (int64_t k = 0; k < K; k += 2)
        pair_rows(B + at(k) * ldb + n0, k + 1 < K ? B + at(k + 1) * ldb + n0 : nullptr, n, w, to + k / 2 * w);
      continue;
    }
    for (int64_t j0 = 0; j0 < w; j0 += S) {
      const float* row[S];
      const int64_t rows = std::min(S, n - j0);
      for (int64_t j = 0; j < rows; ++j) row[j] = B + at(n0 + j0 + j) * ldb;
      for (int64_t k = 0; k < pairs; k += S) {
        Pair square[S * S] = {}, turned[S * S];
        for (int64_t j = 0; j < rows; ++j) _mm512_storeu_si512(square + j * S, rounded(row[j] + 2 * k, K - 2 * k));
        Square<Pair>::transpose(square, S, turned, S);
        for (int64_t i = 0; i < std::min(S, pairs - k); ++i) std::copy_n(turned + i * S, S, to + (k + i) * w + j0);
      }
    }
  }
}

}  // namespace
#else
namespace {
constexpr bool has_bfloat16 = false;
using Narrow = float;
}  // namespace
#endif

namespace {

// A matrix B (K x N) of numbers T, rearranged once for many products as elements E.
template <typename T, typename E>
struct Packed {
  int64_t K, N;
  std::vector<E> panels_of_B;
  // B's rows, or (transposed) its columns, are ld apart.
  Packed(const T* B, int64_t ld, int64_t K, int64_t N, bool transposed)
      : K(K), N(N), panels_of_B(panels<E>(N) * Element<E>::count(K) * Block<E>::width) {
    const auto same = [](int64_t i) { return i; };
    if (transposed) pack<true>(B, ld, K, N, 0, panels<E>(N), panels_of_B.data(), same);
    else pack<false>(B, ld, K, N, 0, panels<E>(N), panels_of_B.data(), same);
  }
  // C (rows x N, ldc apart) = init (ld apart) + A B
  void times(int64_t rows, const Matrix<E>& A, T* C, int64_t ldc, const T* init = nullptr, int64_t ld = 0) const {
    multiply<E>(0, rows, 0, panels<E>(N), Element<E>::count(K), A, {{N, panels_of_B.data(), C, ldc, init, ld}});
  }
};

// A matrix B (K x N) packed for products: in its own precision or, narrow, in bfloat16.
template <typename T>
class PackedFactor {
  static constexpr bool may_be_narrow = has_bfloat16 && std::is_same_v<T, float>;
  std::optional<Packed<T, T>> exact;
  std::optional<Packed<T, Narrow>> narrow;

 public:
  const int64_t K, N;

  PackedFactor(const T* B, int64_t ld, int64_t K, int64_t N, bool transposed, bool wants_narrow) : K(K), N(N) {
    if constexpr (may_be_narrow)
      if (wants_narrow) narrow.emplace(B, ld, K, N, transposed);
    if (!narrow) exact.emplace(B, ld, K, N, transposed);
  }

  // C (rows x N) = init (one row; or null, zero) + A (rows x K, ld apart) B
  void times(int64_t rows, const T* A, int64_t ld, T* C, const T* init = nullptr) const {
    if constexpr (may_be_narrow)
      if (narrow) {
        const int64_t pairs = Element<Narrow>::count(K);
        std::vector<Narrow> a(rows * pairs);
        for (int64_t i = 0; i < rows; ++i) round_row(A + i * ld, K, a.data() + i * pairs);
        return narrow->times(rows, {a.data(), pairs, 1}, C, N, init);
      }
    exact->times(rows, {A, ld, 1}, C, N, init);
  }

  // C (M x N, ldc apart) += A^T B, where A (K x M, ld apart) has as many rows as B
  void add_transposed(int64_t M, const T* A, int64_t ld, T* C, int64_t ldc) const {
    if constexpr (may_be_narrow)
      if (narrow) {
        std::vector<Narrow> a(Element<Narrow>::count(K) * M);
        for (int64_t k = 0; k < K; k += 2)
          pair_rows(A + k * ld, k + 1 < K ? A + (k + 1) * ld : nullptr, M, M, a.data() + k / 2 * M);
        return narrow->times(M, {a.data(), 1, M}, C, ldc, C, ldc);
      }
    exact->times(M, {A, 1, ld}, C, ldc, C, ldc);
  }
};

}  // namespace
