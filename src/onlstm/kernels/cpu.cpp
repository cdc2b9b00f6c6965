// The fused CPU kernel behind onlstm::scan: the loop over time, the matrix products and the gates, forward and backward.
// It computes what reference.py computes, with the names of cell.py; factors of products are of type T, like all else, or
// (E, narrow) of bfloat16. Rows of all time steps stand one after another;
// `sizes[t]` of them belong to step t, and row r of a step belongs to sequence r (longest first). Order of this file:
// forward kernel, backward kernel, host functions, registration.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <numeric>
#include <utility>

#include "bfloat16.h"
#include "exponential.h"

namespace {

using at::Tensor;
using std::optional;

// ----------------------------------------------------------------------------------------------------------- forward

struct Sizes {
  int64_t I, D, C, M, K, G, B, N;  // input, hidden, chunk, master width, its logits, all gates, sequences, rows
  int64_t whole;                   // hidden size of the caller's cell: the length of a row of states and of w_hh

  // The paper's last chunk can never be written. Where it starts from zero, the cell is one without that chunk and with
  // one master logit to spare, whose output ends in zeros: less to compute.
  Sizes without_last_chunk() const { return {I, D - C, C, M - 1, K, G - 4 * C, B, N, whole}; }
  // Where gate n of this cell stands among the gates of the caller's; and the runs [first, last) that stand together.
  int64_t original(int64_t n) const { return n < 2 * K ? n : n + (n - 2 * K) / D * (whole - D); }
  std::vector<std::pair<int64_t, int64_t>> runs() const {
    if (D == whole) return {{0, G}};
    const int64_t o = 2 * K;
    return {{0, o}, {o, o + D}, {o + D, o + 2 * D}, {o + 2 * D, o + 3 * D}, {o + 3 * D, G}};
  }
  int64_t whole_row() const { return G + 4 * (whole - D); }  // gates of the caller's cell
};

// Where the blocks of cell.GATES start within a row of G.
struct Gates {
  int64_t i_m, f_m, o, g, i, f;
  explicit Gates(const Sizes& z)
      : i_m(0), f_m(z.K), o(2 * z.K), g(o + z.D), i(o + 2 * z.D), f(o + 3 * z.D) {}
};

// Gates saturate long before: beyond ±20, sigmoid is within 2e-9 of 0 or 1, and four e^20 can still be multiplied.
template <typename T>
INLINE inline Vec<T> gate_exponential(Vec<T> x) {
  return exponential(x, T(20));
}

template <typename T>
INLINE inline Vec<T> tanh(Vec<T> x) {
  if constexpr (std::is_same_v<T, double>) return x.tanh();
  return Vec<T>(T(1)) - Vec<T>(T(2)) / (Vec<T>(T(1)) + gate_exponential(x + x));
}

// o, g, i, f of their logits; in float32 with one division for the four.
template <typename T>
INLINE inline void activate(Vec<T>& o, Vec<T>& g, Vec<T>& i, Vec<T>& f) {
  const Vec<T> one(T(1));
  if constexpr (std::is_same_v<T, double>) {
    o = one / (one + o.neg().exp());
    i = one / (one + i.neg().exp());
    f = one / (one + f.neg().exp());
    g = g.tanh();
  } else {
    const Vec<T> to = one + gate_exponential(o.neg()), tg = one + gate_exponential(g + g);
    const Vec<T> ti = one + gate_exponential(i.neg()), tf = one + gate_exponential(f.neg());
    const Vec<T> og = to * tg, if_ = ti * tf, all = one / (og * if_), over_og = all * if_, over_if = all * og;
    o = tg * over_og;
    g = one - (to + to) * over_og;
    i = tf * over_if;
    f = ti * over_if;
  }
}

// Run work(j, n) over the neurons, a vector of n at a time.
template <typename T, typename F>
void each_vector(int64_t D, const F& work) {
  constexpr int64_t L = Block<T>::lanes;
  int64_t j = 0;
  for (; j + L <= D; j += L) work(j, L);
  if (j < D) work(j, D - j);
}

// One thread's room for the master gates of a row and what belongs to them.
template <typename T>
struct Room {
  std::vector<double> sum_f, sum_i;  // cumulative sums, unscaled
  std::vector<double> all_bias;      // of all steps; d_bias: of this one
  std::vector<T> f_m, i_m, f_wide, i_wide, d_f_hat, d_i_hat, d_omega, d_bias, d_row;
  explicit Room(const Sizes& z)
      : sum_f(z.K), sum_i(z.K), all_bias(z.G), f_m(z.M), i_m(z.M), f_wide(z.D + Block<T>::lanes), i_wide(z.D + Block<T>::lanes),
        d_f_hat(z.D), d_i_hat(z.D), d_omega(z.D), d_bias(z.G), d_row(z.G) {}
};

// Give each neuron the master gate of its chunk. Whole vectors are written; the next chunk overwrites what is too much.
template <typename T>
void widen(const std::vector<T>& gate, const Sizes& z, std::vector<T>& wide) {
  constexpr int64_t L = Block<T>::lanes;
  for (int64_t m = 0; m < z.M; ++m)
    for (int64_t j = 0; j < z.C; j += L) Vec<T>(gate[m]).store(wide.data() + m * z.C + j);
}

template <typename T>
void softmax_numerators(T* p, int64_t K) {
  constexpr int64_t L = Block<T>::lanes;
  Vec<T> tops(p[0]);
  int64_t whole = 0;
  for (; whole + L <= K; whole += L) tops = at::vec::maximum(tops, Vec<T>::loadu(p + whole));
  T top = at::vec::vec_reduce_all<T>([](Vec<T> x, Vec<T> y) { return at::vec::maximum(x, y); }, tops);
  for (; whole < K; ++whole) top = std::max(top, p[whole]);
  each_vector<T>(K, [&](int64_t k, int64_t n) INLINE {
    exponential(Vec<T>::loadu(p + k, n) - Vec<T>(top), T(87)).store(p + k, n);
  });
}

// The master gates of a row into the room, wide too, and the distances; their logits become the softmax p. Summed in
// double and scaled by the whole sum, the last forget entry is 1 to the last place: a chunk only multiplied by it stays.
template <typename T>
void master_gates(const Sizes& z, T* p_i, T* p_f, Room<T>& room, T* d_f, T* d_i) {
  softmax_numerators(p_i, z.K);
  softmax_numerators(p_f, z.K);
  const int64_t entries = z.whole / z.C;  // that count in a distance
  double f = 0, i = 0, all_f = 0, all_i = 0;
  for (int64_t k = 0; k < z.K; ++k) {
    room.sum_f[k] = f += p_f[k];
    room.sum_i[k] = i += p_i[k];
    if (k < entries) {
      all_f += f;
      all_i += i;
    }
  }
  const double scale_f = 1 / f, scale_i = 1 / i;
  for (int64_t k = 0; k < z.K; ++k) {
    p_f[k] *= T(scale_f);
    p_i[k] *= T(scale_i);
  }
  for (int64_t m = 0; m < z.M; ++m) {
    room.f_m[m] = T(room.sum_f[m] * scale_f);
    room.i_m[m] = T(1 - room.sum_i[m] * scale_i);
  }
  *d_f = T(1 - all_f * scale_f / entries);
  *d_i = T(1 - all_i * scale_i / entries);
  widen(room.f_m, z, room.f_wide);
  widen(room.i_m, z, room.i_wide);
}

// One row: activate its gates (in place, if saved), move c on, write h and the two distances.
template <typename T, bool save>
void forward_row(const Sizes& z, T* row, T* c, T* h, T* h_out, T* d_f, T* d_i, T* c_prev, Room<T>& room) {
  const Gates at(z);
  master_gates(z, row + at.i_m, row + at.f_m, room, d_f, d_i);
  each_vector<T>(z.D, [&](int64_t j, int64_t n) INLINE {
    const auto load = [&](const T* from) { return Vec<T>::loadu(from + j, n); };
    Vec<T> o = load(row + at.o), g = load(row + at.g), i = load(row + at.i), f = load(row + at.f);
    activate(o, g, i, f);
    const Vec<T> f_m = load(room.f_wide.data()), i_m = load(room.i_wide.data()), omega = f_m * i_m, before = load(c);
    const Vec<T> f_hat = at::vec::fmadd(f, omega, f_m - omega), i_hat = at::vec::fmadd(i, omega, i_m - omega);
    const Vec<T> c_t = at::vec::fmadd(f_hat, before, i_hat * g), h_t = o * tanh(c_t);
    if constexpr (save) {
      o.store(row + at.o + j, n);
      g.store(row + at.g + j, n);
      i.store(row + at.i + j, n);
      f.store(row + at.f + j, n);
      before.store(c_prev + j, n);
    }
    c_t.store(c + j, n);
    h_t.store(h + j, n);
    h_t.store(h_out + j, n);
  });
}

// How the work of a step is shared: few rows are split by columns of the product (and the threads meet twice a step),
// many rows by rows (and the threads need not meet, unless the rows grow fewer).
struct Plan {
  std::vector<int64_t> sizes, starts;  // rows of each step, and the first of them
  bool reverse, thin, dense;
  int64_t steps() const { return sizes.size(); }
  int64_t step(int64_t s) const { return reverse ? steps() - 1 - s : s; }
  int64_t threads, enough;  // rows for each thread to be given whole rows
  bool by_rows(int64_t rows) const { return !thin && rows >= enough * threads; }
};

template <typename T, typename E>
struct Forward {
  static constexpr bool narrow = !std::is_same_v<T, E>;
  const Sizes& z;
  const Plan& plan;
  bool input_done, zero_start, save;
  const T *x, *w_ih, *w_hh, *bias;
  const int64_t* places;
  E *packed_ih, *packed_hh;
  E *narrow_x, *narrow_h;  // rounded, if narrow
  T *h, *h_n, *c_n, *d_f, *d_i, *gates, *c_prev;

  // W x + b of rows [first, last), which are several steps, so that these weights are read once for them all; without
  // weights, x + b, with the row of x that `places` names.
  void input(const Team& team, int64_t first, int64_t last) const {
    if (!w_ih) return copy(team, first, last);
    const auto [p0, p1] = team.share(panels<E>(z.G));
    const int64_t K = Element<E>::count(z.I);
    Matrix<E> A{narrow_x, K, 1};
    if constexpr (!narrow) A.data = x;
    multiply<E>(0, last - first, p0, p1, K, A.from(first, 0), {{z.G, packed_ih, rows(first), z.G, bias, 0}});
  }
  void copy(const Team& team, int64_t first, int64_t last) const {
    const auto [n0, n1] = team.share(last - first);
    for (int64_t n = n0; n < n1; ++n) {
      const T* from = x + (places ? places[first + n] : first + n) * z.whole_row();
      T* to = rows(first) + n * z.G;
      for (const auto& [start, end] : z.runs()) std::copy_n(from + z.original(start), end - start, to + start);
      for (int64_t k = 0; bias && k < z.G; ++k) to[k] += bias[k];
    }
  }
  T* rows(int64_t n) const { return save || input_done ? gates + n * z.G : gates; }

  // The rest of step t, whose rows of gates start at a. From zero states U h is not computed.
  void step(const Team& team, int64_t t, bool zero, T* a, Room<T>& room) const {
    const int64_t start = plan.starts[t], b = plan.sizes[t], P = panels<E>(z.G), K = Element<E>::count(z.D);
    const auto [r0, r1] = team.share(b);
    const bool by_rows = plan.by_rows(b);
    if (plan.thin && !zero) {
      const auto [g0, g1] = team.share(z.G);
      thin_dot(b, g0, g1, z.D, h_n, w_hh, a, z.G);
    } else if (!zero) {
      const auto [p0, p1] = by_rows ? std::pair<int64_t, int64_t>{0, P} : team.share(P);
      Matrix<E> A{narrow_h, K, 1};
      if constexpr (!narrow) A = {h_n, z.whole, 1};
      multiply<E>(by_rows ? r0 : 0, by_rows ? r1 : b, p0, p1, K, A, {{z.G, packed_hh, a, z.G, a, z.G}});
    }
    if (!by_rows) team.barrier();
    for (int64_t r = r0; r < r1; ++r) {
      const int64_t n = start + r;
      (save ? forward_row<T, true> : forward_row<T, false>)(z, a + r * z.G, c_n + r * z.whole, h_n + r * z.whole,
                                                            h + n * z.whole, d_f + n, d_i + n, c_prev + n * z.D, room);
      std::fill_n(h + n * z.whole + z.D, z.whole - z.D, T(0));
      if constexpr (narrow) round_row(h_n + r * z.whole, z.D, narrow_h + r * K);
    }
    if (!by_rows || !plan.dense) team.barrier();
  }

  void operator()(const Team& team) const {
    Room<T> room(z);
    const auto [first, last] = team.share(panels<E>(z.G));
    const auto original = [this](int64_t n) { return z.original(n); };
    if (w_ih && !input_done) pack<true>(w_ih, z.I, z.I, z.G, first, last, packed_ih, original);
    if (!plan.thin) pack<true>(w_hh, z.whole, z.D, z.G, first, last, packed_hh, original);
    if constexpr (narrow) {
      const auto [n0, n1] = team.share(z.N);
      for (int64_t n = n0; n < n1; ++n) round_row(x + n * z.I, z.I, narrow_x + n * Element<E>::count(z.I));
      const auto [r0, r1] = team.share(z.B);
      for (int64_t r = r0; r < r1; ++r) round_row(h_n + r * z.whole, z.D, narrow_h + r * Element<E>::count(z.D));
    }
    team.barrier();
    const int64_t fitting = Block<E>::rows(z.G * Element<E>::count(z.I));
    for (int64_t s0 = 0, s1; s0 < plan.steps(); s0 = s1) {
      int64_t count = 0;  // of rows: as many steps as fit the scratch buffer
      for (s1 = s0; s1 < plan.steps() && (s1 == s0 || count + plan.sizes[plan.step(s1)] <= fitting); ++s1)
        count += plan.sizes[plan.step(s1)];
      const int64_t low = plan.starts[std::min(plan.step(s0), plan.step(s1 - 1))];
      if (!input_done) input(team, low, low + count);
      team.barrier();
      for (int64_t s = s0; s < s1; ++s) {
        const int64_t t = plan.step(s);
        step(team, t, s == 0 && zero_start, rows(low) + (plan.starts[t] - low) * z.G, room);
      }
      team.barrier();
    }
  }
};

// ---------------------------------------------------------------------------------------------------------- backward

// p_k moves every gate entry from k on; then softmax's own Jacobian. `sign` is -1 for the input gate, 1 - cumax.
template <typename T>
void cumax_backward(const T* p, int64_t K, const T* d_gate, int64_t M, T sign, T* d_logits, T* d_bias) {
  T tail = 0, mean = 0;
  for (int64_t k = K - 1; k >= 0; --k) {
    if (k < M) tail += sign * d_gate[k];
    d_logits[k] = tail;
    mean += p[k] * tail;
  }
  for (int64_t k = 0; k < K; ++k) d_bias[k] += d_logits[k] = p[k] * (d_logits[k] - mean);
}

// One row: from d_h and d_c (gradients of this step's states) to those of the gates' logits, which are also summed in
// room.d_bias; d_c becomes d_c_prev.
template <typename T>
void backward_row(const Sizes& z, const T* row, const T* c_prev, const T* d_h, const T* d_out, T d_df, T d_di, T* d_c,
                  T* d_row, Room<T>& room) {
  const Gates at(z);
  const int64_t entries = z.whole / z.C;
  T* d_bias = room.d_bias.data();
  double f = 0, i = 0;
  for (int64_t m = 0; m < z.M; ++m) {
    room.f_m[m] = f += row[at.f_m + m];
    room.i_m[m] = 1 - (i += row[at.i_m + m]);
  }
  widen(room.f_m, z, room.f_wide);
  widen(room.i_m, z, room.i_wide);
  each_vector<T>(z.D, [&](int64_t j, int64_t n) INLINE {
    const auto load = [&](const T* from) { return Vec<T>::loadu(from + j, n); };
    const Vec<T> one(T(1)), o = load(row + at.o), g = load(row + at.g), i = load(row + at.i), f = load(row + at.f);
    const Vec<T> f_m = load(room.f_wide.data()), i_m = load(room.i_wide.data()), omega = f_m * i_m;
    const Vec<T> f_hat = f * omega + (f_m - omega), i_hat = i * omega + (i_m - omega), c = load(c_prev);
    const Vec<T> tanh_c = tanh(at::vec::fmadd(i_hat, g, f_hat * c));
    const Vec<T> d_ht = d_out ? load(d_h) + load(d_out) : load(d_h);
    const Vec<T> d_ct = at::vec::fmadd(d_ht * o, one - tanh_c * tanh_c, load(d_c));
    const Vec<T> d_f_hat = d_ct * c, d_i_hat = d_ct * g;
    const auto put = [&](int64_t gate, Vec<T> d) {
      d.store(d_row + gate + j, n);
      (load(d_bias + gate) + d).store(d_bias + gate + j, n);
    };
    put(at.o, d_ht * tanh_c * o * (one - o));
    put(at.g, d_ct * i_hat * (one - g * g));
    put(at.i, d_i_hat * omega * i * (one - i));
    put(at.f, d_f_hat * omega * f * (one - f));
    (d_ct * f_hat).store(d_c + j, n);
    d_f_hat.store(room.d_f_hat.data() + j, n);
    d_i_hat.store(room.d_i_hat.data() + j, n);
    at::vec::fmadd(d_i_hat, i - one, d_f_hat * (f - one)).store(room.d_omega.data() + j, n);
  });
  for (int64_t m = 0; m < z.M; ++m) {
    T s_f = 0, s_i = 0, s_omega = 0;
    for (int64_t j = m * z.C; j < (m + 1) * z.C; ++j) {
      s_f += room.d_f_hat[j];
      s_i += room.d_i_hat[j];
      s_omega += room.d_omega[j];
    }
    const T f_m = room.f_m[m], i_m = room.i_m[m];
    room.f_m[m] = s_f + s_omega * i_m - d_df / entries;  // from here on their gradients
    room.i_m[m] = s_i + s_omega * f_m + d_di / entries;
  }
  cumax_backward(row + at.f_m, z.K, room.f_m.data(), z.M, T(1), d_row + at.f_m, d_bias + at.f_m);
  cumax_backward(row + at.i_m, z.K, room.i_m.data(), z.M, T(-1), d_row + at.i_m, d_bias + at.i_m);
}

// The way back through time: d_h and d_c hold the gradients of the states all along, d_gates those of the logits.
template <typename T, typename E>
struct Backward {
  const Sizes& z;
  const Plan& plan;
  const T *d_out, *d_df, *d_di, *gates, *c_prev, *w_hh;
  E *packed, *d_gates;
  T *d_bias, *d_h, *d_c;  // d_bias: a row of sums for each thread
  T* d_x;                 // of pre-activations that were given; nullptr: not wanted. With places, sums for each thread
  const int64_t* places;
  int64_t R;

  void add_row(const T* d_row, T* to) const {
    for (const auto& [start, end] : z.runs())
      for (int64_t k = start, shift = z.original(start) - start; k < end; ++k) to[k + shift] += d_row[k];
  }

  void operator()(const Team& team) const {
    Room<T> room(z);
    const int64_t P = panels<E>(z.D), K = Element<E>::count(z.G);
    if (!plan.thin) {
      const auto [first, last] = team.share(P);
      pack<false>(w_hh, z.whole, z.G, z.D, first, last, packed, [this](int64_t k) { return z.original(k); });
      team.barrier();
    }
    for (int64_t s = plan.steps() - 1; s >= 0; --s) {
      const int64_t t = plan.step(s), start = plan.starts[t], b = plan.sizes[t];
      const auto [r0, r1] = team.share(b);
      const bool by_rows = plan.by_rows(b);
      for (int64_t r = r0; r < r1; ++r) {
        const int64_t n = start + r;
        T* d_row = room.d_row.data();
        if constexpr (std::is_same_v<T, E>) d_row = d_gates + n * K;
        backward_row<T>(z, gates + n * z.G, c_prev + n * z.D, d_h + r * z.whole, d_out ? d_out + n * z.whole : nullptr,
                     d_df ? d_df[n] : T(0), d_di ? d_di[n] : T(0), d_c + r * z.whole, d_row, room);
        if constexpr (!std::is_same_v<T, E>) round_row(d_row, z.G, d_gates + n * K);
        if (d_x) add_row(d_row, d_x + (places ? team.rank * R + places[n] : n) * z.whole_row());
      }
      for (int64_t n = 0; n < z.G; ++n) room.all_bias[n] += std::exchange(room.d_bias[n], T(0));
      if (!by_rows) team.barrier();
      const E* d_a = d_gates + start * K;
      if (plan.thin) {
        const auto [n0, n1] = team.share(z.D);
        if constexpr (std::is_same_v<T, E>) thin_sum(b, n0, n1, z.D, z.G, d_a, w_hh, d_h);
      } else {
        const auto [p0, p1] = by_rows ? std::pair<int64_t, int64_t>{0, P} : team.share(P);
        multiply<E>(by_rows ? r0 : 0, by_rows ? r1 : b, p0, p1, K, {d_a, K, 1}, {{z.D, packed, d_h, z.whole, nullptr, 0}});
      }
      if (!by_rows || !plan.dense) team.barrier();
    }
    std::copy(room.all_bias.begin(), room.all_bias.end(), d_bias + team.rank * z.G);
  }
};

// ---------------------------------------------------------------------------------------------------- host functions

Plan make_plan(const Sizes& z, const optional<Tensor>& batch_sizes, bool reverse, bool narrow) {
  Plan plan;
  if (batch_sizes) {
    const Tensor sizes = batch_sizes->contiguous();
    TORCH_CHECK(sizes.scalar_type() == at::kLong && sizes.dim() == 1, "batch_sizes must be a 1-D int64 tensor");
    plan.sizes.assign(sizes.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>() + sizes.numel());
  } else {
    TORCH_CHECK(z.B ? z.N % z.B == 0 : z.N == 0, "x has ", z.N, " rows, not a multiple of the batch ", z.B);
    plan.sizes.assign(z.B ? z.N / z.B : 0, z.B);
  }
  int64_t rows = 0, before = z.B;
  for (const int64_t size : plan.sizes) {
    TORCH_CHECK(0 < size && size <= before, "batch_sizes must fall from at most ", z.B, ", never reaching 0");
    plan.starts.push_back(rows);
    rows += before = size;
  }
  TORCH_CHECK(rows == z.N, "batch_sizes add up to ", rows, ", x has ", z.N, " rows");
  plan.reverse = reverse;
  plan.dense = !batch_sizes;
  plan.thin = !narrow && (z.B <= 3 || z.N < few_rows);
  const bool worth_threads = z.B * z.G * z.D >= (int64_t(1) << 18);
  plan.threads = worth_threads ? at::get_num_threads() : 1;
  plan.enough = z.G * z.D <= (2 << 20) ? 8 : 16;  // then each thread reads all weights: more, if they are many
  return plan;
}

Sizes make_sizes(const Tensor& x, const optional<Tensor>& w_ih, const optional<Tensor>& places, const Tensor& w_hh,
                 const Tensor& h0, int64_t chunk_size) {
  TORCH_CHECK(x.dim() == 2 && w_hh.dim() == 2 && h0.dim() == 2, "x, weights, h0 must be matrices");
  const int64_t I = w_ih ? x.size(1) : 0, D = w_hh.size(1), G = w_hh.size(0);
  TORCH_CHECK(w_ih || x.size(1) == G, "x must have ", G, " columns, those of the gates, got ", x.size(1));
  TORCH_CHECK(chunk_size > 0 && D % chunk_size == 0, "hidden size ", D, " is not a multiple of chunk_size ", chunk_size);
  const int64_t M = D / chunk_size, K = (G - 4 * D) / 2;
  TORCH_CHECK(G == 4 * D + 2 * K && (K == M || K == M + 1), "w_hh has ", G, " rows, expected ", 4 * D + 2 * M);
  TORCH_CHECK(!w_ih || !places, "places are rows of pre-activations: with w_ih there are none");
  return {I, D, chunk_size, M, K, G, h0.size(0), places ? places->numel() : x.size(0), D};
}

// Which row of x each row of the scan is; undefined: its own.
Tensor checked_places(const optional<Tensor>& places, const Tensor& x) {
  if (!places) return Tensor();
  TORCH_CHECK(places->scalar_type() == at::kLong && places->dim() == 1, "places must be a 1-D int64 tensor");
  const Tensor rows = places->contiguous();
  const int64_t* first = rows.const_data_ptr<int64_t>();
  const int64_t R = x.size(0);
  TORCH_CHECK(std::all_of(first, first + rows.numel(), [R](int64_t place) { return 0 <= place && place < R; }),
              "places must be from 0 to ", R - 1, ", the rows of x");
  return rows;
}

Tensor checked(const Tensor& x, const Tensor& like, const char* name, at::IntArrayRef shape) {
  TORCH_CHECK(x.scalar_type() == like.scalar_type(), name, " must be ", like.scalar_type(), ", got ", x.scalar_type());
  TORCH_CHECK(x.device().is_cpu(), name, " must be on the CPU");
  TORCH_CHECK(x.sizes() == shape, name, " must have size ", shape, ", got ", x.sizes());
  return x.contiguous();
}

template <typename T>
const T* data(const Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

// Whether a state is zero from a column on.
template <typename T>
bool zero_from(const Tensor& state, int64_t column) {
  const T* row = data<T>(state);
  for (int64_t r = 0; r < state.size(0); ++r, row += state.size(1))
    if (std::any_of(row + column, row + state.size(1), [](T x) { return x != 0; })) return false;
  return true;
}

// The cell to compute: the caller's or, if nobody asks for gradients of its first state, the one without a dead chunk.
template <typename T>
Sizes live_cell(const Sizes& z, const Plan& plan, const Tensor& h0, const Tensor& c0, bool wants_d_state) {
  const bool dead = z.K == z.M && z.M > 1 && zero_from<T>(h0, z.D - z.C) && zero_from<T>(c0, z.D - z.C);
  return dead && !wants_d_state && !plan.thin ? z.without_last_chunk() : z;
}

// Room for so many elements, which are as large as the numbers they are summed in.
template <typename E>
Tensor room_for(int64_t count, const Tensor& like) {
  static_assert(sizeof(E) == sizeof(SumOf<E>));
  return at::empty({count}, like.options());
}
template <typename E>
E* elements(const Tensor& room) {
  return static_cast<E*>(room.data_ptr());
}

// Rows of pairs of neighbours (N x G numbers) as pairs of rows, so that they can be multiplied along N. Numbers stay.
template <typename E>
void by_pairs_of_rows(Team team, int64_t N, int64_t G, const E* rows, E* to) {
  if constexpr (!std::is_same_v<E, SumOf<E>>) {
    const auto [first, last] = team.share(Element<E>::count(N));
    for (int64_t n = first; n < last; ++n)
      pair_rows(rows + n * G, 2 * n + 1 < N ? rows + n * G + G / 2 : nullptr, G, to + n * G);
  }
}

// C_i = A B_i on all threads, for matrices A (M x K) and B_i (K x N_i) whose row k stands at `at(k)`. Of C_i, the rows in
// `runs`, each run put where `place` says for its first row. A is made by all threads first, by `prepare(team)`.
template <typename T>
struct Factor {
  const T* B;
  int64_t ldb, N;
  const Tensor& C;
};
template <typename E, typename F, typename P, typename A, size_t count>
void product(const std::vector<std::pair<int64_t, int64_t>>& runs, int64_t K, Matrix<E> a, const A& prepare,
             const Factor<SumOf<E>> (&factors)[count], const F& at, const P& place) {
  using T = SumOf<E>;
  static_assert(count == 1 || count == 2);
  if (K == 0) return;
  Tensor packed[count];
  for (size_t i = 0; i < count; ++i)
    packed[i] = room_for<E>(panels<E>(factors[i].N) * Block<E>::width * Element<E>::count(K), factors[i].C);
  const int64_t threads = runs.back().second * factors[0].N * K >= (int64_t(1) << 20) ? at::get_num_threads() : 1;
  with_team(threads, [&](Team team) {
    prepare(team);
    for (size_t i = 0; i < count; ++i) {
      const auto [first, last] = team.share(panels<E>(factors[i].N));
      pack<false>(factors[i].B, factors[i].ldb, K, factors[i].N, first, last, elements<E>(packed[i]), at);
    }
    team.barrier();
    for (const auto& [start, end] : runs) {
      const auto [m0, m1] = team.share(end - start);
      const int64_t shift = place(start) - start, any = std::numeric_limits<int64_t>::max();
      const auto target = [&](size_t i) {
        const Factor<T>& f = factors[i];
        const int64_t ldc = f.C.size(1);
        return Target<E>{f.N, elements<E>(packed[i]), f.C.template data_ptr<T>() + shift * ldc, ldc, nullptr, 0};
      };
      const int64_t top = start + m0, bottom = start + m1, k = Element<E>::count(K);
      if constexpr (count == 1) multiply<E>(top, bottom, 0, any, k, a, {target(0)});
      if constexpr (count == 2) multiply<E>(top, bottom, 0, any, k, a, {target(0), target(1)});
    }
  });
}

// Run the code with T, the type of the numbers, and E, that of the factors of their products.
#define DISPATCH(type, narrow, ...)                                                   \
  if (narrow) {                                                                       \
    TORCH_CHECK(has_bfloat16, "this processor does not multiply in bfloat16");        \
    TORCH_CHECK((type) == at::kFloat, "only float32 can be multiplied in bfloat16");  \
    using T = float;                                                                  \
    using E = Narrow;                                                                 \
    __VA_ARGS__();                                                                    \
  } else if ((type) == at::kFloat) {                                                  \
    using T = float;                                                                  \
    using E = T;                                                                      \
    __VA_ARGS__();                                                                    \
  } else {                                                                            \
    TORCH_CHECK((type) == at::kDouble, "only for float32 and float64");               \
    using T = double;                                                                 \
    using E = T;                                                                      \
    __VA_ARGS__();                                                                    \
  }

using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Outputs scan(const Tensor& x_, const optional<Tensor>& w_ih_, const Tensor& w_hh_, const optional<Tensor>& bias_,
             const Tensor& h0, const Tensor& c0, const optional<Tensor>& batch_sizes, int64_t chunk_size, bool reverse,
             bool save, bool wants_d_state, const optional<Tensor>& places_, bool narrow) {
  const Sizes z = make_sizes(x_, w_ih_, places_, w_hh_, h0, chunk_size);
  const Plan plan = make_plan(z, batch_sizes, reverse, narrow);
  const Tensor x = x_.contiguous(), w_ih = w_ih_ ? checked(*w_ih_, x, "w_ih", {z.G, z.I}) : Tensor();
  const Tensor w_hh = checked(w_hh_, x, "w_hh", {z.G, z.D}), bias = bias_ ? checked(*bias_, x, "bias", {z.G}) : Tensor();
  const Tensor places = checked_places(places_, x);
  const Tensor h_n = checked(h0, x, "h0", {z.B, z.D}).clone(), c_n = checked(c0, x, "c0", {z.B, z.D}).clone();
  const auto empty = [&](at::IntArrayRef shape) { return at::empty(shape, x.options()); };
  const Tensor h = empty({z.N, z.D}), d_f = empty({z.N}), d_i = empty({z.N});
  const Tensor gates = empty({save ? z.N : 0, z.G}), c_prev = empty({save ? z.N : 0, z.D});
  DISPATCH(x.scalar_type(), narrow, [&] {
    const bool zero_start = zero_from<T>(h_n, 0);
    const Sizes live = live_cell<T>(z, plan, h_n, c_n, wants_d_state);
    std::vector<T> live_bias;
    for (int64_t n = 0; bias.defined() && n < live.G; ++n) live_bias.push_back(data<T>(bias)[live.original(n)]);
    const int64_t columns = panels<E>(live.G) * Block<E>::width, I = Element<E>::count(z.I), D = Element<E>::count(live.D);
    const bool few = w_ih_ && !narrow && z.N < few_rows;  // then the stock product, which needs no rearranged weights
    const int64_t scratch = few ? z.N : std::min(z.N, std::max(z.B, Block<E>::rows(live.G * I)));
    Tensor work = save ? gates : empty({scratch, live.G});
    if (few) at::linear_out(work, x, w_ih, bias_);
    const Tensor packed_ih = room_for<E>(few ? 0 : columns * I, x), packed_hh = room_for<E>(plan.thin ? 0 : columns * D, x);
    const Tensor narrow_x = room_for<E>(narrow ? z.N * I : 0, x), narrow_h = room_for<E>(narrow ? z.B * D : 0, x);
    const Forward<T, E> forward{live, plan, few, zero_start, save, data<T>(x), data<T>(w_ih), data<T>(w_hh),
                                bias.defined() ? live_bias.data() : nullptr, data<int64_t>(places), elements<E>(packed_ih),
                                elements<E>(packed_hh), elements<E>(narrow_x), elements<E>(narrow_h),
                                h.data_ptr<T>(), h_n.data_ptr<T>(), c_n.data_ptr<T>(), d_f.data_ptr<T>(),
                                d_i.data_ptr<T>(), work.data_ptr<T>(), c_prev.data_ptr<T>()};
    with_team(plan.threads, forward);
    if (save && live.D < z.D) {  // nothing undefined leaves here
      gates.flatten().narrow(0, z.N * live.G, z.N * (z.G - live.G)).zero_();
      c_prev.flatten().narrow(0, z.N * live.D, z.N * (z.D - live.D)).zero_();
    }
  });
  return {h, h_n, c_n, d_f, d_i, gates, c_prev};
}

// The hidden state each row's step started from.
Tensor previous_states(const Plan& plan, const Tensor& h, const Tensor& h0) {
  const Tensor before = at::empty_like(h), state = h0.clone();
  for (int64_t s = 0; s < plan.steps(); ++s) {
    const int64_t t = plan.step(s), start = plan.starts[t], b = plan.sizes[t];
    before.narrow(0, start, b).copy_(state.narrow(0, 0, b));
    state.narrow(0, 0, b).copy_(h.narrow(0, start, b));
  }
  return before;
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Gradients scan_backward(const optional<Tensor>& d_h, const optional<Tensor>& d_hn, const optional<Tensor>& d_cn,
                        const optional<Tensor>& d_df, const optional<Tensor>& d_di, const Tensor& x_,
                        const optional<Tensor>& w_ih_, const Tensor& w_hh_, const Tensor& h0_, const Tensor& c0_,
                        const Tensor& h_, const Tensor& gates_, const Tensor& c_prev_,
                        const optional<Tensor>& batch_sizes, int64_t chunk_size, bool reverse, bool wants_d_x,
                        bool wants_d_state, const optional<Tensor>& places_, bool narrow) {
  const Sizes z = make_sizes(x_, w_ih_, places_, w_hh_, h0_, chunk_size);
  const Plan plan = make_plan(z, batch_sizes, reverse, narrow);
  const Tensor x = x_.contiguous(), w_ih = w_ih_ ? checked(*w_ih_, x, "w_ih", {z.G, z.I}) : Tensor();
  const Tensor w_hh = checked(w_hh_, x, "w_hh", {z.G, z.D}), h = checked(h_, x, "h", {z.N, z.D});
  const Tensor h0 = checked(h0_, x, "h0", {z.B, z.D}), c0 = checked(c0_, x, "c0", {z.B, z.D});
  const Tensor gates = checked(gates_, x, "gates", {z.N, z.G}), c_prev = checked(c_prev_, x, "c_prev", {z.N, z.D});
  const auto given = [&](const optional<Tensor>& d, at::IntArrayRef shape) {
    return d ? checked(*d, x, "gradient", shape) : Tensor();
  };
  const Tensor out = given(d_h, {z.N, z.D}), df = given(d_df, {z.N}), di = given(d_di, {z.N});
  const Tensor d_h0 = d_hn ? given(d_hn, {z.B, z.D}).clone() : at::zeros({z.B, z.D}, x.options());
  const Tensor d_c0 = d_cn ? given(d_cn, {z.B, z.D}).clone() : at::zeros({z.B, z.D}, x.options());
  const Tensor d_w_ih = w_ih_ ? at::zeros_like(w_ih) : at::empty({0}, x.options()), d_w_hh = at::zeros_like(w_hh);
  const Tensor d_bias = at::zeros({z.G}, x.options());
  const Tensor places = checked_places(places_, x);
  const bool summed = wants_d_x && !w_ih_;  // row by row, as they come
  const int64_t R = x.size(0);
  Tensor d_x = at::empty({wants_d_x ? R : 0, x.size(1)}, x.options());
  DISPATCH(x.scalar_type(), narrow, [&] {
    const Sizes live = live_cell<T>(z, plan, h0, c0, wants_d_state);
    const int64_t G = Element<E>::count(live.G), N = Element<E>::count(z.N);
    const Tensor sums = at::zeros({plan.threads, live.G}, x.options()), d_gates = room_for<E>(z.N * G, x);
    {
      const Tensor packed = room_for<E>(plan.thin ? 0 : panels<E>(live.D) * Block<E>::width * G, x);
      const int64_t tables = places_ ? plan.threads : 1;
      const Tensor d_rows = at::zeros({tables, summed ? R : 0, z.G}, x.options());
      const Backward<T, E> backward{live, plan, data<T>(out), data<T>(df), data<T>(di), data<T>(gates), data<T>(c_prev),
                                    data<T>(w_hh), elements<E>(packed), elements<E>(d_gates), sums.data_ptr<T>(),
                                    d_h0.data_ptr<T>(), d_c0.data_ptr<T>(), summed ? d_rows.data_ptr<T>() : nullptr,
                                    data<int64_t>(places), R};
      with_team(plan.threads, backward);
      if (summed) d_x = tables > 1 ? d_rows.sum(0) : d_rows.select(0, 0);
    }
    const auto same = [](int64_t i) { return i; };
    const auto original = [&](int64_t n) { return live.original(n); };
    const Tensor h_prev = previous_states(plan, h, h0), sum = sums.sum(0);
    for (const auto& [start, end] : live.runs())
      d_bias.narrow(0, original(start), end - start).copy_(sum.narrow(0, start, end - start));
    const Tensor turned = narrow ? room_for<E>(N * live.G, x) : d_gates;
    const auto turn = [&](Team team) { by_pairs_of_rows(team, z.N, live.G, elements<E>(d_gates), elements<E>(turned)); };
    const Matrix<E> by_gates{elements<E>(turned), 1, live.G};
    const Factor<T> of_h{data<T>(h_prev), z.D, live.D, d_w_hh}, of_x{data<T>(x), z.I, z.I, d_w_ih};
    if (!w_ih_) return product<E>(live.runs(), z.N, by_gates, turn, {of_h}, same, original);
    product<E>(live.runs(), z.N, by_gates, turn, {of_h, of_x}, same, original);
    if (wants_d_x && !narrow && z.N < few_rows) {
      at::mm_out(d_x, d_gates.view({z.N, z.G}), w_ih);
    } else if (wants_d_x) {
      product<E>({{0, z.N}}, live.G, {elements<E>(d_gates), G, 1}, [](Team) {}, {{data<T>(w_ih), z.I, z.I, d_x}}, original,
                 same);
    }
  });
  return {d_x, d_w_ih, d_w_hh, d_bias, d_h0, d_c0};
}

}  // namespace

TORCH_LIBRARY(onlstm_cpu, m) {
  m.def(
      "scan(Tensor x, Tensor? w_ih, Tensor w_hh, Tensor? bias, Tensor h0, Tensor c0, Tensor? batch_sizes, "
      "int chunk_size, bool reverse, bool save, bool wants_d_state, Tensor? places=None, *, bool narrow=False) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "scan_backward(Tensor? d_h, Tensor? d_hn, Tensor? d_cn, Tensor? d_df, Tensor? d_di, Tensor x, Tensor? w_ih, "
      "Tensor w_hh, Tensor h0, Tensor c0, Tensor h, Tensor gates, Tensor c_prev, Tensor? batch_sizes, int chunk_size, "
      "bool reverse, bool wants_d_x, bool wants_d_state, Tensor? places=None, *, bool narrow=False) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def("has_bfloat16() -> bool", [] { return has_bfloat16; });
}

TORCH_LIBRARY_IMPL(onlstm_cpu, CPU, m) {
  m.impl("scan", &scan);
  m.impl("scan_backward", &scan_backward);
}
