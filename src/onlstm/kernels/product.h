// A matrix product of our own, and the threads that share it. Why: a batch of 20 is too skinny for the stock product, and
// here the weights are rearranged once per call and then read in order at every step.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#define INLINE __attribute__((always_inline))

namespace {

template <typename T>
using Vec = at::vec::Vectorized<T>;

// ---------------------------------------------------------------------------------------------------------- threads

// A team of threads runs the whole scan together; `share` is a thread's part of n equal pieces.
struct Team {
  int64_t rank, size;
  std::pair<int64_t, int64_t> share(int64_t n) const { return {n * rank / size, n * (rank + 1) / size}; }
  void barrier() const {
#ifdef _OPENMP
    if (size > 1) {
#pragma omp barrier
    }
#endif
  }
};

template <typename F>
void with_team(int64_t threads, const F& work) {
#ifdef _OPENMP
  if (threads > 1 && !at::in_parallel_region()) {
#pragma omp parallel num_threads(threads)
    work(Team{omp_get_thread_num(), omp_get_num_threads()});
    return;
  }
#endif
  work(Team{0, 1});
}

// ---------------------------------------------------------------------------------------------------- matrix product

// What factors are made of, and how they are multiplied: numbers, summed in their own type, or what bfloat16.h adds.
template <typename E>
struct Element {
  using Sum = E;
  using Lanes = Vec<E>;
  static constexpr int64_t count(int64_t numbers) { return numbers; }
  static INLINE Lanes load(const E* from) { return Lanes::loadu(from); }
  static INLINE Lanes same(E x) { return Lanes(x); }
  static INLINE Vec<Sum> multiply_add(Lanes a, Lanes b, Vec<Sum> sum) { return at::vec::fmadd(a, b, sum); }
};
template <typename E>
using SumOf = typename Element<E>::Sum;

// C = init + A B, tile by tile: `height` rows of A times a panel of `width` columns of B stay in registers. K is counted
// in elements.
template <typename E>
struct Block {
  static constexpr int64_t lanes = Vec<SumOf<E>>::size();
#if defined(CPU_CAPABILITY_AVX512) || defined(__aarch64__)
  static constexpr int64_t vectors = 4;  // 6 x 4 sums in 32 registers
#else
  static constexpr int64_t vectors = 2;  // 6 x 2 sums in 16 registers
#endif
  static constexpr int64_t width = lanes * vectors;
  static constexpr int64_t height = 6;
  static constexpr int64_t depth = 4096 / sizeof(E);  // of B held in the second-level cache at a time
  // of A likewise: more when B itself comes from afar
  static int64_t rows(int64_t weights) { return height * (weights * sizeof(E) <= (8 << 20) ? 7 : 40); }
};

constexpr int64_t few_rows = 48;  // in a whole call: too few to rearrange weights for

// A matrix somewhere in memory: element (i, j) at data[i * row + j * col].
template <typename E>
struct Matrix {
  const E* data;
  int64_t row, col;
  Matrix from(int64_t i, int64_t j) const { return {data + i * row + j * col, row, col}; }
};

// Columns of B come in panels of `width`; the last panel is as many vectors wide as it needs.
template <typename E>
int64_t panels(int64_t N) {
  return (N + Block<E>::width - 1) / Block<E>::width;
}
template <typename E>
int64_t vectors_of(int64_t panel, int64_t N) {
  const int64_t left = N - panel * Block<E>::width;
  return std::min(Block<E>::vectors, (left + Block<E>::lanes - 1) / Block<E>::lanes);
}

// A square that fits the registers, transposed: at each stage rows i and i + S exchange their off-diagonal blocks.
template <typename T>
struct Square {
  static constexpr int size = 64 / sizeof(T);
  typedef T Row __attribute__((vector_size(64)));
  typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> Index __attribute__((vector_size(64)));

#ifndef __clang__
  template <int S = size / 2>
  static void stage(Row* row) {
    Index low, high;
    for (int c = 0; c < size; ++c) {
      low[c] = c & S ? size + c - S : c;
      high[c] = c & S ? size + c : c + S;
    }
#pragma GCC unroll 16
    for (int i = 0; i < size; ++i) {
      if (i & S) continue;
      const Row a = row[i], b = row[i + S];
      row[i] = __builtin_shuffle(a, b, low);
      row[i + S] = __builtin_shuffle(a, b, high);
    }
    if constexpr (S > 1) stage<S / 2>(row);
  }
#endif
  static void transpose(const T* from, int64_t ld_from, T* to, int64_t ld_to) {
#ifdef __clang__  // has no __builtin_shuffle
    for (int i = 0; i < size; ++i)
      for (int j = 0; j < size; ++j) to[j * ld_to + i] = from[i * ld_from + j];
#else
    Row row[size];
#pragma GCC unroll 16
    for (int i = 0; i < size; ++i) std::memcpy(&row[i], from + i * ld_from, 64);
    stage(row);
#pragma GCC unroll 16
    for (int i = 0; i < size; ++i) std::memcpy(to + i * ld_to, &row[i], 64);
#endif
  }
};

// Write panels [first, last) of the K x N matrix B one after another, each row by row, padded with zeros. In memory B is
// a list of its rows or, transposed, of its columns, ldb apart; the i-th of them is read from place `at(i)`.
template <bool transposed, typename T, typename F>
void pack(const T* B, int64_t ldb, int64_t K, int64_t N, int64_t first, int64_t last, T* packed, const F& at) {
  constexpr int64_t W = Block<T>::width, S = Square<T>::size;
  for (int64_t p = first; p < last; ++p) {
    T* to = packed + p * K * W;
    const int64_t n0 = p * W, n = std::min(W, N - n0), w = vectors_of<T>(p, N) * Block<T>::lanes;
    if (n < w) std::fill(to, to + K * w, T(0));
    if constexpr (!transposed) {
      for (int64_t k = 0; k < K; ++k) std::copy_n(B + at(k) * ldb + n0, n, to + k * w);
      continue;
    }
    for (int64_t j0 = 0; j0 < n; j0 += S) {
      const int64_t j1 = std::min(n, j0 + S), start = at(n0 + j0);
      const bool square = j1 - j0 == S && at(n0 + j1 - 1) == start + S - 1;
      const int64_t whole = square ? K / S * S : 0;
      for (int64_t k = 0; k < whole; k += S) Square<T>::transpose(B + start * ldb + k, ldb, to + k * w + j0, w);
      for (int64_t j = j0; j < j1; ++j)
        for (int64_t k = whole; k < K; ++k) to[k * w + j] = B[at(n0 + j) * ldb + k];
    }
  }
}

template <typename E, int H, int V, typename T = SumOf<E>>
void tile(int64_t K, Matrix<E> A, const E* B, T* C, int64_t ldc, const T* init, int64_t ld_init) {
  constexpr int64_t L = Block<E>::lanes;
  using Lanes = typename Element<E>::Lanes;
  Vec<T> sum[H][V];
#pragma GCC unroll 8
  for (int i = 0; i < H; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) sum[i][j] = init ? Vec<T>::loadu(init + i * ld_init + j * L) : Vec<T>(T(0));
  for (int64_t k = 0; k < K; ++k) {
    Lanes b[V];
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) b[j] = Element<E>::load(B + k * V * L + j * L);
#pragma GCC unroll 8
    for (int i = 0; i < H; ++i) {
      const Lanes a = Element<E>::same(A.data[i * A.row + k * A.col]);
#pragma GCC unroll 8
      for (int j = 0; j < V; ++j) sum[i][j] = Element<E>::multiply_add(a, b[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < H; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) sum[i][j].store(C + i * ldc + j * L);
}

// A tile of h rows and n columns. If the last vector sticks out of the matrix, it is computed aside and copied.
template <typename E, int H = Block<E>::height, int V = Block<E>::vectors, typename T = SumOf<E>>
void any_tile(int64_t h, int64_t n, int64_t K, Matrix<E> A, const E* B, T* C, int64_t ldc, const T* init,
              int64_t ld_init) {
  constexpr int64_t L = Block<E>::lanes, W = V * L;
  if (h < H) {
    if constexpr (H > 1) return any_tile<E, H - 1, V>(h, n, K, A, B, C, ldc, init, ld_init);
  } else if (n <= W - L) {
    if constexpr (V > 1) return any_tile<E, H, V - 1>(h, n, K, A, B, C, ldc, init, ld_init);
  } else if (n == W) {
    tile<E, H, V>(K, A, B, C, ldc, init, ld_init);
  } else {
    T start[H * W] = {}, end[H * W];
    for (int i = 0; init && i < H; ++i) std::copy_n(init + i * ld_init, n, start + i * W);
    tile<E, H, V>(K, A, B, end, W, start, W);
    for (int i = 0; i < H; ++i) std::copy_n(end + i * W, n, C + i * ldc);
  }
}

// C (M x N) = init + A (M x K) B: B packed. init may be null (zero), or one row for all (ld_init = 0), or C itself.
template <typename E>
struct Target {
  int64_t N;
  const E* packed;
  SumOf<E>* C;
  int64_t ldc;
  const SumOf<E>* init;
  int64_t ld_init;
};

// Rows [m0, m1) and panels [p0, p1) of each target, all with the same A. A is copied when its rows are not contiguous.
// Rows are cut into nearly equal blocks, and those into nearly equal tiles: 20 rows are 5 + 5 + 5 + 5.
template <typename E>
void multiply(int64_t m0, int64_t m1, int64_t p0, int64_t p1, int64_t K, Matrix<E> A,
              std::initializer_list<Target<E>> targets) {
  using Bl = Block<E>;
  using T = SumOf<E>;
  std::vector<E> copy;
  const int64_t all = m1 - m0, block = Bl::rows(targets.begin()->N * K);
  const int64_t blocks = std::max<int64_t>(1, (all + block / 2) / block), depths = (K + Bl::depth - 1) / Bl::depth;
  for (int64_t d = 0; d < depths; ++d) {
    const int64_t k0 = K * d / depths, k = K * (d + 1) / depths - k0;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t i0 = m0 + all * i / blocks, m = m0 + all * (i + 1) / blocks - i0;
      const int64_t tiles = (m + Bl::height - 1) / Bl::height;
      Matrix<E> a = A.from(i0, k0);
      if (a.col != 1) {  // k by k, all rows of the block side by side
        copy.resize(m * k);
        for (int64_t j = 0; j < k; ++j)
          for (int64_t r = 0; r < m; ++r) copy[j * m + r] = a.data[r * a.row + j * a.col];
        a = {copy.data(), 1, m};
      }
      for (const Target<E>& to : targets)
        for (int64_t p = p0; p < std::min(p1, panels<E>(to.N)); ++p) {
          const int64_t n0 = p * Bl::width, n = std::min(Bl::width, to.N - n0), w = vectors_of<E>(p, to.N) * Bl::lanes;
          const E* b = to.packed + p * K * Bl::width + k0 * w;
          for (int64_t s = 0; s < tiles; ++s) {
            const int64_t top = m * s / tiles, h = m * (s + 1) / tiles - top;
            T* c = to.C + (i0 + top) * to.ldc + n0;
            const T* from = k0 ? c : to.init ? to.init + (i0 + top) * to.ld_init + n0 : nullptr;
            any_tile<E>(h, n, k, a.from(top, 0), b, c, to.ldc, from, k0 ? to.ldc : to.ld_init);
          }
        }
    }
  }
}

// The same for one to three rows, where rearranging the weights would cost more than it saves, and reading them in the
// order they stand is all that counts: C[m][n] += sum_k A[m][k] W[n][k] for n in [n0, n1) ...
template <typename T>
void thin_dot(int64_t M, int64_t n0, int64_t n1, int64_t K, const T* A, const T* W, T* C, int64_t ldc) {
  constexpr int64_t L = Block<T>::lanes, R = 4;
  const int64_t whole = K / (R * L) * (R * L);
  for (int64_t n = n0; n < n1; ++n) {
    const T* w = W + n * K;
    for (int64_t m = 0; m < M; ++m) {
      const T* a = A + m * K;
      Vec<T> sums[R];
      for (int r = 0; r < R; ++r) sums[r] = Vec<T>(T(0));
      for (int64_t k = 0; k < whole; k += R * L) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
          sums[r] = at::vec::fmadd(Vec<T>::loadu(a + k + r * L), Vec<T>::loadu(w + k + r * L), sums[r]);
      }
      T sum = at::vec::vec_reduce_all<T>([](Vec<T> x, Vec<T> y) { return x + y; },
                                         (sums[0] + sums[1]) + (sums[2] + sums[3]));
      for (int64_t k = whole; k < K; ++k) sum += a[k] * w[k];
      C[m * ldc + n] += sum;
    }
  }
}

// ... and C[m][n] = sum_k A[m][k] W[k][n] for n in [n0, n1).
template <typename T>
void thin_sum(int64_t M, int64_t n0, int64_t n1, int64_t N, int64_t K, const T* A, const T* W, T* C) {
  constexpr int64_t L = Block<T>::lanes, R = 8;
  for (int64_t m = 0; m < M; ++m) std::fill(C + m * N + n0, C + m * N + n1, T(0));
  for (int64_t k = 0; k < K; k += R) {
    const int64_t rows = std::min(R, K - k);
    for (int64_t m = 0; m < M; ++m) {
      T* c = C + m * N;
      T a[R] = {};
      const T* w[R];
      for (int64_t r = 0; r < R; ++r) w[r] = W + (k + std::min(r, rows - 1)) * N;
      std::copy_n(A + m * K + k, rows, a);
      int64_t n = n0;
      for (; n + L <= n1; n += L) {
        Vec<T> sum = Vec<T>::loadu(c + n);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum = at::vec::fmadd(Vec<T>(a[r]), Vec<T>::loadu(w[r] + n), sum);
        sum.store(c + n);
      }
      for (; n < n1; ++n)
        for (int r = 0; r < R; ++r) c[n] += a[r] * w[r][n];
    }
  }
}

}  // namespace
