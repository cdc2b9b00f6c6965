// The fused CPU kernel behind onlstm::scan: the loop over time, the recurrent matrix product and the gates, forward and
// backward. It computes what reference.py computes, with the names of cell.py. Rows of all time steps stand one after
// another; `sizes[t]` of them belong to step t, and row r of a step belongs to sequence r (longest first).
//
// Why a matrix product of our own: a batch of 20 is too skinny for the stock one, and here the weights are rearranged
// once per call and then read in order at every step. Order of this file: matrix product, forward, backward, host
// functions, registration.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

using at::Tensor;
using std::optional;
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

// C = init + A B, tile by tile: `height` rows of A times a panel of `width` columns of B stay in registers.
template <typename T>
struct Block {
  static constexpr int64_t lanes = Vec<T>::size();
#if defined(CPU_CAPABILITY_AVX512) || defined(__aarch64__)
  static constexpr int64_t vectors = 4;  // 6 x 4 sums in 32 registers
#else
  static constexpr int64_t vectors = 2;  // 6 x 2 sums in 16 registers
#endif
  static constexpr int64_t width = lanes * vectors;
  static constexpr int64_t height = 6;
  static constexpr int64_t depth = 4096 / sizeof(T);  // of B held in the second-level cache at a time
  static constexpr int64_t rows = 40 * height;        // of A likewise
};

// A matrix somewhere in memory: element (i, j) at data[i * row + j * col].
template <typename T>
struct Matrix {
  const T* data;
  int64_t row, col;
  Matrix from(int64_t i, int64_t j) const { return {data + i * row + j * col, row, col}; }
};

template <typename T>
int64_t panels(int64_t N) {
  return (N + Block<T>::width - 1) / Block<T>::width;
}

// Write panels [first, last) of the K x N matrix B one after another, each row by row, the last one padded with zeros.
template <typename T>
void pack(Matrix<T> B, int64_t K, int64_t N, int64_t first, int64_t last, T* packed) {
  constexpr int64_t W = Block<T>::width, step = 64;
  for (int64_t p = first; p < last; ++p) {
    T* to = packed + p * K * W;
    const int64_t n0 = p * W, n = std::min(W, N - n0);
    if (n < W) std::fill(to, to + K * W, T(0));
    if (B.col == 1) {
      for (int64_t k = 0; k < K; ++k) std::copy_n(B.data + k * B.row + n0, n, to + k * W);
    } else {
      for (int64_t k0 = 0; k0 < K; k0 += step)
        for (int64_t j = 0; j < n; ++j) {
          const T* from = B.data + (n0 + j) * B.col;
          for (int64_t k = k0; k < std::min(K, k0 + step); ++k) to[k * W + j] = from[k * B.row];
        }
    }
  }
}

template <typename T, int H>
void tile(int64_t K, Matrix<T> A, const T* B, T* C, int64_t ldc, const T* init, int64_t ld_init) {
  constexpr int64_t V = Block<T>::vectors, L = Block<T>::lanes;
  Vec<T> sum[H][V];
#pragma GCC unroll 8
  for (int i = 0; i < H; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) sum[i][j] = init ? Vec<T>::loadu(init + i * ld_init + j * L) : Vec<T>(T(0));
  for (int64_t k = 0; k < K; ++k) {
    Vec<T> b[V];
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) b[j] = Vec<T>::loadu(B + k * V * L + j * L);
#pragma GCC unroll 8
    for (int i = 0; i < H; ++i) {
      const Vec<T> a(A.data[i * A.row + k * A.col]);
#pragma GCC unroll 8
      for (int j = 0; j < V; ++j) sum[i][j] = at::vec::fmadd(a, b[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < H; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) sum[i][j].store(C + i * ldc + j * L);
}

// A tile whose panel sticks out of the matrix by some columns: computed aside, then copied.
template <typename T, int H>
void edge_tile(int64_t K, Matrix<T> A, const T* B, T* C, int64_t ldc, const T* init, int64_t ld_init, int64_t n) {
  constexpr int64_t W = Block<T>::width;
  T start[H * W] = {}, end[H * W];
  if (init)
    for (int i = 0; i < H; ++i) std::copy_n(init + i * ld_init, n, start + i * W);
  tile<T, H>(K, A, B, end, W, start, W);
  for (int i = 0; i < H; ++i) std::copy_n(end + i * W, n, C + i * ldc);
}

template <typename T, int H = Block<T>::height>
void any_tile(int64_t h, int64_t K, Matrix<T> A, const T* B, T* C, int64_t ldc, const T* init, int64_t ld_init, int64_t n) {
  if (h < H) {
    if constexpr (H > 1) any_tile<T, H - 1>(h, K, A, B, C, ldc, init, ld_init, n);
  } else if (n == Block<T>::width) {
    tile<T, H>(K, A, B, C, ldc, init, ld_init);
  } else {
    edge_tile<T, H>(K, A, B, C, ldc, init, ld_init, n);
  }
}

// Rows [m0, m1) and panels [p0, p1) of C (M x N) = init + A (M x K) B, B packed. init may be null (zero), or one row for
// all (ld_init = 0), or C itself. A is copied when its rows are not contiguous.
template <typename T>
void multiply(int64_t m0, int64_t m1, int64_t p0, int64_t p1, int64_t N, int64_t K, Matrix<T> A, const T* packed, T* C,
              int64_t ldc, const T* init, int64_t ld_init) {
  using Bl = Block<T>;
  std::vector<T> copy;
  for (int64_t k0 = 0; k0 < K; k0 += Bl::depth) {
    const int64_t k = std::min(Bl::depth, K - k0);
    for (int64_t i0 = m0; i0 < m1; i0 += Bl::rows) {
      const int64_t m = std::min(Bl::rows, m1 - i0), tiles = (m + Bl::height - 1) / Bl::height;
      Matrix<T> a = A.from(i0, k0);
      if (a.col != 1) {  // k by k, all rows of the block side by side
        copy.resize(m * k);
        for (int64_t j = 0; j < k; ++j)
          for (int64_t i = 0; i < m; ++i) copy[j * m + i] = a.data[i * a.row + j * a.col];
        a = {copy.data(), 1, m};
      }
      for (int64_t p = p0; p < p1; ++p) {
        const int64_t n0 = p * Bl::width, n = std::min(Bl::width, N - n0);
        for (int64_t s = 0; s < tiles; ++s) {  // tiles of nearly equal height: 20 rows are 5 + 5 + 5 + 5
          const int64_t top = m * s / tiles, h = m * (s + 1) / tiles - top;
          T* c = C + (i0 + top) * ldc + n0;
          const T* from = k0 ? c : init ? init + (i0 + top) * ld_init + n0 : nullptr;
          any_tile<T>(h, k, a.from(top, 0), packed + (p * K + k0) * Bl::width, c, ldc, from, k0 ? ldc : ld_init, n);
        }
      }
    }
  }
}

// The same for one to three rows, where the weights are read once and rearranging them would cost more than it saves:
// C[m][n] = init + sum_k A[m][k] W[n][k] for n in [n0, n1) ...
template <typename T>
void thin_dot(int64_t M, int64_t n0, int64_t n1, int64_t K, const T* A, const T* W, T* C, int64_t ldc, const T* init,
              int64_t ld_init) {
  constexpr int64_t L = Block<T>::lanes, R = 4;
  const int64_t whole = K / (2 * L) * (2 * L);
  for (int64_t n = n0; n < n1; n += R) {
    const int64_t rows = std::min(R, n1 - n);
    for (int64_t m = 0; m < M; ++m) {
      const T* a = A + m * K;
      const T* w[R];
      for (int r = 0; r < R; ++r) w[r] = W + (n + std::min<int64_t>(r, rows - 1)) * K;
      Vec<T> even[R], odd[R];
      for (int r = 0; r < R; ++r) even[r] = odd[r] = Vec<T>(T(0));
      for (int64_t k = 0; k < whole; k += 2 * L) {
        const Vec<T> a0 = Vec<T>::loadu(a + k), a1 = Vec<T>::loadu(a + k + L);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          even[r] = at::vec::fmadd(a0, Vec<T>::loadu(w[r] + k), even[r]);
          odd[r] = at::vec::fmadd(a1, Vec<T>::loadu(w[r] + k + L), odd[r]);
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        T sum = at::vec::vec_reduce_all<T>([](Vec<T> x, Vec<T> y) { return x + y; }, even[r] + odd[r]);
        for (int64_t k = whole; k < K; ++k) sum += a[k] * w[r][k];
        C[m * ldc + n + r] = init[m * ld_init + n + r] + sum;
      }
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

// ----------------------------------------------------------------------------------------------------------- forward

struct Sizes {
  int64_t D, C, M, K, G, B, N;  // hidden, chunk, master width, its logits, all gates, sequences, rows
};

// Where the blocks of cell.GATES start within a row of G.
struct Gates {
  int64_t i_m, f_m, o, g, i, f;
  explicit Gates(const Sizes& z)
      : i_m(0), f_m(z.K), o(2 * z.K), g(o + z.D), i(o + 2 * z.D), f(o + 3 * z.D) {}
};

template <typename T>
Vec<T> sigmoid(Vec<T> x) {
  return Vec<T>(T(1)) / (Vec<T>(T(1)) + x.neg().exp());
}

// softmax in place, then the cumulative sum of the first M entries.
template <typename T>
void cumax(T* p, int64_t K, T* gate, int64_t M) {
  constexpr int64_t L = Block<T>::lanes;
  const T top = *std::max_element(p, p + K);
  int64_t k = 0;
  for (; k + L <= K; k += L) (Vec<T>::loadu(p + k) - Vec<T>(top)).exp().store(p + k);
  if (k < K) (Vec<T>::loadu(p + k, K - k) - Vec<T>(top)).exp().store(p + k, K - k);
  const T scale = T(1) / std::accumulate(p, p + K, T(0));
  T sum = 0;
  for (k = 0; k < K; ++k) {
    p[k] *= scale;
    sum += p[k];
    if (k < M) gate[k] = sum;
  }
}

// Give each neuron the master gate of its chunk.
template <typename T>
void widen(const T* gate, const Sizes& z, T* wide) {
  for (int64_t m = 0; m < z.M; ++m) std::fill_n(wide + m * z.C, z.C, gate[m]);
}

// One thread's room for the master gates of a row and what belongs to them.
template <typename T>
struct Room {
  std::vector<T> f_m, i_m, f_wide, i_wide, d_f_hat, d_i_hat, d_omega;
  explicit Room(const Sizes& z)
      : f_m(z.M), i_m(z.M), f_wide(z.D), i_wide(z.D), d_f_hat(z.D), d_i_hat(z.D), d_omega(z.D) {}
};

// Run f(j, n) over the neurons, a vector of n at a time.
template <typename T, typename F>
void each_vector(int64_t D, const F& f) {
  constexpr int64_t L = Block<T>::lanes;
  int64_t j = 0;
  for (; j + L <= D; j += L) f(j, L);
  if (j < D) f(j, D - j);
}

// One row: activate its gates in place, move c on, write h and the two distances.
template <typename T>
void forward_row(const Sizes& z, T* row, T* c, T* h, T* h_out, T* d_f, T* d_i, Room<T>& room) {
  const Gates at(z);
  cumax(row + at.f_m, z.K, room.f_m.data(), z.M);
  cumax(row + at.i_m, z.K, room.i_m.data(), z.M);
  for (T& x : room.i_m) x = 1 - x;
  *d_f = 1 - std::accumulate(room.f_m.begin(), room.f_m.end(), T(0)) / z.M;
  *d_i = std::accumulate(room.i_m.begin(), room.i_m.end(), T(0)) / z.M;
  widen(room.f_m.data(), z, room.f_wide.data());
  widen(room.i_m.data(), z, room.i_wide.data());
  each_vector<T>(z.D, [&](int64_t j, int64_t n) {
    const auto load = [&](const T* from) { return Vec<T>::loadu(from + j, n); };
    const Vec<T> o = sigmoid(load(row + at.o)), g = load(row + at.g).tanh();
    const Vec<T> i = sigmoid(load(row + at.i)), f = sigmoid(load(row + at.f));
    const Vec<T> f_m = load(room.f_wide.data()), i_m = load(room.i_wide.data()), omega = f_m * i_m;
    const Vec<T> f_hat = f * omega + (f_m - omega), i_hat = i * omega + (i_m - omega);
    const Vec<T> c_t = f_hat * load(c) + i_hat * g, h_t = o * c_t.tanh();
    o.store(row + at.o + j, n);
    g.store(row + at.g + j, n);
    i.store(row + at.i + j, n);
    f.store(row + at.f + j, n);
    c_t.store(c + j, n);
    h_t.store(h + j, n);
    h_t.store(h_out + j, n);
  });
}

// How the work of a step is shared: few rows are split by columns of the product (and the threads meet twice a step),
// many rows by rows (and the threads never meet, unless the rows grow fewer).
struct Plan {
  std::vector<int64_t> sizes, starts;  // rows of each step, and the first of them
  bool reverse, thin, dense;
  int64_t threads;
  int64_t step(int64_t s) const { return reverse ? int64_t(sizes.size()) - 1 - s : s; }
  bool by_rows(int64_t rows) const { return rows >= 16 * threads; }
};

template <typename T>
void scan_forward(const Sizes& z, const Plan& plan, const T* x_gates, const T* w_hh, T* packed, T* h, T* h_n, T* c_n,
                  T* d_f, T* d_i, T* gates, T* c_prev, bool save) {
  with_team(plan.threads, [&](Team team) {
    Room<T> room(z);
    const int64_t P = panels<T>(z.G);
    if (!plan.thin) {
      const auto [first, last] = team.share(P);
      pack<T>({w_hh, 1, z.D}, z.D, z.G, first, last, packed);
      team.barrier();
    }
    for (int64_t s = 0; s < int64_t(plan.sizes.size()); ++s) {
      const int64_t t = plan.step(s), start = plan.starts[t], b = plan.sizes[t];
      const T* x = x_gates + start * z.G;
      T* a = save ? gates + start * z.G : gates;
      const auto [r0, r1] = team.share(b);
      const bool by_rows = plan.by_rows(b);
      if (plan.thin) {
        const auto [g0, g1] = team.share(z.G);
        thin_dot(b, g0, g1, z.D, h_n, w_hh, a, z.G, x, z.G);
      } else {
        const auto [p0, p1] = by_rows ? std::pair<int64_t, int64_t>{0, P} : team.share(P);
        multiply<T>(by_rows ? r0 : 0, by_rows ? r1 : b, p0, p1, z.G, z.D, {h_n, z.D, 1}, packed, a, z.G, x, z.G);
      }
      if (plan.thin || !by_rows) team.barrier();
      for (int64_t r = r0; r < r1; ++r) {
        const int64_t n = start + r;
        if (save) std::copy_n(c_n + r * z.D, z.D, c_prev + n * z.D);
        forward_row(z, a + r * z.G, c_n + r * z.D, h_n + r * z.D, h + n * z.D, d_f + n, d_i + n, room);
      }
      if (plan.thin || !by_rows || !plan.dense) team.barrier();
    }
  });
}

// ---------------------------------------------------------------------------------------------------------- backward

// p_k moves every gate entry from k on; then softmax's own Jacobian. `sign` is -1 for the input gate, 1 - cumax.
template <typename T>
void cumax_backward(const T* p, int64_t K, const T* d_gate, int64_t M, T sign, T* d_logits) {
  T tail = 0, mean = 0;
  for (int64_t k = K - 1; k >= 0; --k) {
    if (k < M) tail += sign * d_gate[k];
    d_logits[k] = tail;
    mean += p[k] * tail;
  }
  for (int64_t k = 0; k < K; ++k) d_logits[k] = p[k] * (d_logits[k] - mean);
}

// One row: from d_h and d_c (gradients of this step's states) to those of the gates' logits; d_c becomes d_c_prev.
template <typename T>
void backward_row(const Sizes& z, const T* row, const T* c_prev, const T* d_h, const T* d_out, T d_df, T d_di, T* d_c,
                  T* d_row, Room<T>& room) {
  const Gates at(z);
  T f = 0, i = 0;
  for (int64_t m = 0; m < z.M; ++m) {
    room.f_m[m] = f += row[at.f_m + m];
    room.i_m[m] = 1 - (i += row[at.i_m + m]);
  }
  widen(room.f_m.data(), z, room.f_wide.data());
  widen(room.i_m.data(), z, room.i_wide.data());
  each_vector<T>(z.D, [&](int64_t j, int64_t n) {
    const auto load = [&](const T* from) { return Vec<T>::loadu(from + j, n); };
    const Vec<T> one(T(1)), o = load(row + at.o), g = load(row + at.g), i = load(row + at.i), f = load(row + at.f);
    const Vec<T> f_m = load(room.f_wide.data()), i_m = load(room.i_wide.data()), omega = f_m * i_m;
    const Vec<T> f_hat = f * omega + (f_m - omega), i_hat = i * omega + (i_m - omega), c = load(c_prev);
    const Vec<T> tanh_c = (f_hat * c + i_hat * g).tanh();
    const Vec<T> d_ht = d_out ? load(d_h) + load(d_out) : load(d_h);
    const Vec<T> d_ct = load(d_c) + d_ht * o * (one - tanh_c * tanh_c);
    const Vec<T> d_f_hat = d_ct * c, d_i_hat = d_ct * g;
    (d_ht * tanh_c * o * (one - o)).store(d_row + at.o + j, n);
    (d_ct * i_hat * (one - g * g)).store(d_row + at.g + j, n);
    (d_i_hat * omega * i * (one - i)).store(d_row + at.i + j, n);
    (d_f_hat * omega * f * (one - f)).store(d_row + at.f + j, n);
    (d_ct * f_hat).store(d_c + j, n);
    d_f_hat.store(room.d_f_hat.data() + j, n);
    d_i_hat.store(room.d_i_hat.data() + j, n);
    (d_f_hat * (f - one) + d_i_hat * (i - one)).store(room.d_omega.data() + j, n);
  });
  for (int64_t m = 0; m < z.M; ++m) {
    T s_f = 0, s_i = 0, s_omega = 0;
    for (int64_t j = m * z.C; j < (m + 1) * z.C; ++j) {
      s_f += room.d_f_hat[j];
      s_i += room.d_i_hat[j];
      s_omega += room.d_omega[j];
    }
    const T f_m = room.f_m[m], i_m = room.i_m[m];
    room.f_m[m] = s_f + s_omega * i_m - d_df / z.M;  // from here on their gradients
    room.i_m[m] = s_i + s_omega * f_m + d_di / z.M;
  }
  cumax_backward(row + at.f_m, z.K, room.f_m.data(), z.M, T(1), d_row + at.f_m);
  cumax_backward(row + at.i_m, z.K, room.i_m.data(), z.M, T(-1), d_row + at.i_m);
}

// h_prev is filled with the hidden state each row started from; d_h and d_c hold the states' gradients all along.
template <typename T>
void scan_backward(const Sizes& z, const Plan& plan, const T* d_out, const T* d_df, const T* d_di, const T* gates,
                   const T* c_prev, const T* w_hh, T* packed, T* d_x_gates, T* d_h, T* d_c) {
  with_team(plan.threads, [&](Team team) {
    Room<T> room(z);
    const int64_t P = panels<T>(z.D);
    if (!plan.thin) {
      const auto [first, last] = team.share(P);
      pack<T>({w_hh, z.D, 1}, z.G, z.D, first, last, packed);
      team.barrier();
    }
    for (int64_t s = int64_t(plan.sizes.size()) - 1; s >= 0; --s) {
      const int64_t t = plan.step(s), start = plan.starts[t], b = plan.sizes[t];
      const auto [r0, r1] = team.share(b);
      const bool by_rows = plan.by_rows(b);
      for (int64_t r = r0; r < r1; ++r) {
        const int64_t n = start + r;
        backward_row(z, gates + n * z.G, c_prev + n * z.D, d_h + r * z.D, d_out ? d_out + n * z.D : nullptr,
                     d_df ? d_df[n] : T(0), d_di ? d_di[n] : T(0), d_c + r * z.D, d_x_gates + n * z.G, room);
      }
      if (plan.thin || !by_rows) team.barrier();
      const T* d_a = d_x_gates + start * z.G;
      if (plan.thin) {
        const auto [n0, n1] = team.share(z.D);
        thin_sum(b, n0, n1, z.D, z.G, d_a, w_hh, d_h);
      } else {
        const auto [p0, p1] = by_rows ? std::pair<int64_t, int64_t>{0, P} : team.share(P);
        multiply<T>(by_rows ? r0 : 0, by_rows ? r1 : b, p0, p1, z.D, z.G, {d_a, z.G, 1}, packed, d_h, z.D, nullptr, 0);
      }
      if (plan.thin || !by_rows || !plan.dense) team.barrier();
    }
  });
}

// ---------------------------------------------------------------------------------------------------- host functions

Plan make_plan(const Sizes& z, const optional<Tensor>& batch_sizes, bool reverse) {
  Plan plan;
  if (batch_sizes) {
    const Tensor sizes = batch_sizes->contiguous();
    TORCH_CHECK(sizes.scalar_type() == at::kLong && sizes.dim() == 1, "batch_sizes must be a 1-D int64 tensor");
    plan.sizes.assign(sizes.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>() + sizes.numel());
  } else {
    TORCH_CHECK(z.B ? z.N % z.B == 0 : z.N == 0, "x_gates has ", z.N, " rows, not a multiple of the batch ", z.B);
    plan.sizes.assign(z.B ? z.N / z.B : 0, z.B);
  }
  int64_t rows = 0, before = z.B;
  for (const int64_t size : plan.sizes) {
    TORCH_CHECK(0 < size && size <= before, "batch_sizes must fall from at most ", z.B, ", never reaching 0");
    plan.starts.push_back(rows);
    rows += before = size;
  }
  TORCH_CHECK(rows == z.N, "batch_sizes add up to ", rows, ", x_gates has ", z.N, " rows");
  plan.reverse = reverse;
  plan.dense = !batch_sizes;
  plan.thin = z.B <= 3 || z.N < 32;
  const bool worth_threads = z.B * z.G * z.D >= (int64_t(1) << 18);
  plan.threads = worth_threads ? at::get_num_threads() : 1;
  return plan;
}

Sizes make_sizes(const Tensor& gates, const Tensor& w_hh, const Tensor& h0, int64_t chunk_size) {
  TORCH_CHECK(gates.dim() == 2 && w_hh.dim() == 2 && h0.dim() == 2, "gates, w_hh and h0 must be matrices");
  const int64_t D = w_hh.size(1), G = w_hh.size(0);
  TORCH_CHECK(chunk_size > 0 && D % chunk_size == 0, "hidden size ", D, " is not a multiple of chunk_size ", chunk_size);
  const int64_t M = D / chunk_size, K = (G - 4 * D) / 2;
  TORCH_CHECK(G == 4 * D + 2 * K && (K == M || K == M + 1), "w_hh has ", G, " rows, expected ", 4 * D + 2 * M);
  TORCH_CHECK(gates.size(1) == G, "gates have ", gates.size(1), " columns, expected ", G);
  TORCH_CHECK(h0.size(1) == D, "h0 has ", h0.size(1), " columns, expected ", D);
  return {D, chunk_size, M, K, G, h0.size(0), gates.size(0)};
}

void check_like(const Tensor& x, const Tensor& like, const char* name, at::IntArrayRef shape) {
  TORCH_CHECK(x.scalar_type() == like.scalar_type(), name, " must be ", like.scalar_type(), ", got ", x.scalar_type());
  TORCH_CHECK(x.device().is_cpu(), name, " must be on the CPU");
  TORCH_CHECK(x.sizes() == shape, name, " must have size ", shape, ", got ", x.sizes());
}

#define DISPATCH(type, name, ...)                                               \
  if ((type) == at::kFloat) {                                                   \
    using T = float;                                                            \
    __VA_ARGS__();                                                              \
  } else {                                                                      \
    TORCH_CHECK((type) == at::kDouble, name, " is for float32 and float64");    \
    using T = double;                                                           \
    __VA_ARGS__();                                                              \
  }

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Outputs scan(const Tensor& x_gates, const Tensor& w_hh, const Tensor& h0, const Tensor& c0,
             const optional<Tensor>& batch_sizes, int64_t chunk_size, bool reverse, bool save) {
  const Sizes z = make_sizes(x_gates, w_hh, h0, chunk_size);
  check_like(w_hh, x_gates, "w_hh", {z.G, z.D});
  check_like(h0, x_gates, "h0", {z.B, z.D});
  check_like(c0, x_gates, "c0", {z.B, z.D});
  const Plan plan = make_plan(z, batch_sizes, reverse);
  const Tensor x = x_gates.contiguous(), w = w_hh.contiguous();
  const Tensor h_n = h0.clone(at::MemoryFormat::Contiguous), c_n = c0.clone(at::MemoryFormat::Contiguous);
  const auto options = x.options();
  const Tensor h = at::empty({z.N, z.D}, options), d_f = at::empty({z.N}, options), d_i = at::empty({z.N}, options);
  const Tensor gates = at::empty({save ? z.N : 0, z.G}, options), c_prev = at::empty({save ? z.N : 0, z.D}, options);
  const Tensor work = save ? gates : at::empty({z.B, z.G}, options);
  DISPATCH(x.scalar_type(), "onlstm::scan", [&] {
    const Tensor packed = at::empty({plan.thin ? 0 : panels<T>(z.G) * Block<T>::width * z.D}, options);
    scan_forward<T>(z, plan, x.const_data_ptr<T>(), w.const_data_ptr<T>(), packed.data_ptr<T>(), h.data_ptr<T>(),
                    h_n.data_ptr<T>(), c_n.data_ptr<T>(), d_f.data_ptr<T>(), d_i.data_ptr<T>(), work.data_ptr<T>(),
                    c_prev.data_ptr<T>(), save);
  });
  return {h, h_n, c_n, d_f, d_i, gates, c_prev};
}

// C (M x N) = A (M x K) B (K x N) + bias, on all threads.
template <typename T>
void product(int64_t M, int64_t N, int64_t K, Matrix<T> A, Matrix<T> B, const T* bias, const Tensor& C) {
  if (K == 0) {
    C.zero_();
    return;
  }
  const int64_t P = panels<T>(N);
  const Tensor packed = at::empty({P * Block<T>::width * K}, C.options());
  const int64_t threads = M * N * K >= (int64_t(1) << 20) ? at::get_num_threads() : 1;
  with_team(threads, [&](Team team) {
    const auto [first, last] = team.share(P);
    pack<T>(B, K, N, first, last, packed.data_ptr<T>());
    team.barrier();
    const auto [m0, m1] = team.share(M);
    multiply<T>(m0, m1, 0, P, N, K, A, packed.const_data_ptr<T>(), C.data_ptr<T>(), N, bias, 0);
  });
}

// The hidden state each row's step started from.
Tensor previous_states(const Sizes& z, const Plan& plan, const Tensor& h, const Tensor& h0) {
  const Tensor before = at::empty_like(h), state = h0.clone(at::MemoryFormat::Contiguous);
  for (int64_t s = 0; s < int64_t(plan.sizes.size()); ++s) {
    const int64_t t = plan.step(s), start = plan.starts[t], b = plan.sizes[t];
    before.narrow(0, start, b).copy_(state.narrow(0, 0, b));
    state.narrow(0, 0, b).copy_(h.narrow(0, start, b));
  }
  return before;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> scan_backward(
    const optional<Tensor>& d_h, const optional<Tensor>& d_hn, const optional<Tensor>& d_cn,
    const optional<Tensor>& d_df, const optional<Tensor>& d_di, const Tensor& gates, const Tensor& c_prev,
    const Tensor& h, const Tensor& h0, const Tensor& w_hh, const optional<Tensor>& batch_sizes, int64_t chunk_size,
    bool reverse) {
  const Sizes z = make_sizes(gates, w_hh, h0, chunk_size);
  const Plan plan = make_plan(z, batch_sizes, reverse);
  const auto start = [&](const optional<Tensor>& d) {
    return d ? d->clone(at::MemoryFormat::Contiguous) : at::zeros_like(h0, at::MemoryFormat::Contiguous);
  };
  const auto whole = [](const optional<Tensor>& d) { return d ? d->contiguous() : Tensor(); };
  const Tensor out = whole(d_h), df = whole(d_df), di = whole(d_di), w = w_hh.contiguous();
  const Tensor d_h0 = start(d_hn), d_c0 = start(d_cn);
  const Tensor d_x_gates = at::empty_like(gates), d_w_hh = at::empty({z.G, z.D}, w.options());
  DISPATCH(gates.scalar_type(), "onlstm::scan_backward", [&] {
    const auto data = [](const Tensor& x) { return x.defined() ? x.const_data_ptr<T>() : nullptr; };
    {
      const Tensor packed = at::empty({plan.thin ? 0 : panels<T>(z.D) * Block<T>::width * z.G}, w.options());
      scan_backward<T>(z, plan, data(out), data(df), data(di), data(gates), data(c_prev), data(w), packed.data_ptr<T>(),
                       d_x_gates.data_ptr<T>(), d_h0.data_ptr<T>(), d_c0.data_ptr<T>());
    }
    const Tensor h_prev = previous_states(z, plan, h.contiguous(), h0);
    product<T>(z.G, z.D, z.N, {data(d_x_gates), 1, z.G}, {data(h_prev), z.D, 1}, nullptr, d_w_hh);
  });
  return {d_x_gates, d_w_hh, d_h0, d_c0};
}

Tensor linear(const Tensor& x, const Tensor& weight, const optional<Tensor>& bias) {
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2, "onlstm::linear is for matrices");
  const int64_t M = x.size(0), K = x.size(1), N = weight.size(0);
  check_like(weight, x, "weight", {N, K});
  if (bias) check_like(*bias, x, "bias", {N});
  if (M < 48 || N < 48 || K < 16) return at::linear(x, weight, bias);
  const Tensor y = at::empty({M, N}, x.options()), b = bias ? bias->contiguous() : Tensor();
  DISPATCH(x.scalar_type(), "onlstm::linear", [&] {
    product<T>(M, N, K, {x.const_data_ptr<T>(), x.stride(0), x.stride(1)},
               {weight.const_data_ptr<T>(), weight.stride(1), weight.stride(0)},
               b.defined() ? b.const_data_ptr<T>() : nullptr, y);
  });
  return y;
}

}  // namespace

TORCH_LIBRARY(onlstm_cpu, m) {
  m.def(
      "scan(Tensor x_gates, Tensor w_hh, Tensor h0, Tensor c0, Tensor? batch_sizes, int chunk_size, bool reverse, "
      "bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "scan_backward(Tensor? d_h, Tensor? d_hn, Tensor? d_cn, Tensor? d_df, Tensor? d_di, Tensor gates, Tensor c_prev, "
      "Tensor h, Tensor h0, Tensor w_hh, Tensor? batch_sizes, int chunk_size, bool reverse) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
}

TORCH_LIBRARY_IMPL(onlstm_cpu, CPU, m) {
  m.impl("scan", &scan);
  m.impl("scan_backward", static_cast<std::tuple<Tensor, Tensor, Tensor, Tensor> (*)(
                              const optional<Tensor>&, const optional<Tensor>&, const optional<Tensor>&,
                              const optional<Tensor>&, const optional<Tensor>&, const Tensor&, const Tensor&,
                              const Tensor&, const Tensor&, const Tensor&, const optional<Tensor>&, int64_t, bool)>(
                              &scan_backward));
  m.impl("linear", &linear);
}
