// The fused CPU kernel behind onlstm::chart: inside and outside of a simple grammar, P(A→BC) = left[A,B] right[A,C], over
// sentences of equal length. It computes what `inside` and its gradient compute in chart.py, in probabilities: the N numbers
// of a span are scaled so that the largest is 1, and the logarithm of the scale stands beside them. A group of sentences
// that fits the cache goes through both passes at once; groups are shared among threads, and their sums are added in order,
// so the number of threads changes no digit. Order of this file: a group's chart, inside, outside, host function,
// registration.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>

#include "bfloat16.h"

namespace {

using at::Tensor;

constexpr int64_t group_bytes = 3 << 20;  // of a group's chart, roughly
constexpr int64_t most_sentences = 16;    // of a group

// The rules: from children to their parents' sides, and back.
template <typename T>
struct Rules {
  int64_t N, P, S;  // nonterminals, preterminals, both
  bool narrow;
  const T* root;
  PackedFactor<T> up_words, up_spans, down_words, down_spans;

  // sides: left above right, 2N x S
  Rules(int64_t N, int64_t P, const T* root, const T* sides, bool narrow)
      : N(N), P(P), S(N + P), narrow(narrow), root(root), up_words(sides + N, S, P, 2 * N, true, narrow),
        up_spans(sides, S, N, 2 * N, true, narrow), down_words(sides + N, S, 2 * N, P, false, narrow),
        down_spans(sides, S, 2 * N, N, false, narrow) {}
};

// ------------------------------------------------------------------------------------------------------ a group's chart

// Spans of one width stand together, sentence by sentence, so that a width is one product. `scale[i][j]` is the logarithm
// of the scale of span [i, j), `without` the same without the span's own score; both also by their ends.
template <typename T>
struct Chart {
  int64_t G, n, N, P;
  std::vector<int64_t> first;                   // row of a width's first span
  std::vector<T> words;                         // G n x P: inside; then outside
  std::vector<T> spans;                         // rows x N, without those of single words: inside; then outside
  std::vector<T> sides;                         // rows x 2N: left, right of every span and word
  std::vector<double> scale, without, scale_by_end, without_by_end;

  Chart(int64_t G, int64_t n, int64_t N, int64_t P) : G(G), n(n), N(N), P(P), first(n + 2) {
    for (int64_t w = 1; w <= n; ++w) first[w + 1] = first[w] + G * (n - w + 1);
    words.resize(G * n * P);
    spans.resize((first[n + 1] - first[2]) * N);
    sides.resize(first[n + 1] * 2 * N);
    for (auto* matrix : {&scale, &without, &scale_by_end, &without_by_end}) matrix->resize(G * (n + 1) * (n + 1));
  }
  int64_t rows(int64_t w) const { return G * (n - w + 1); }
  int64_t row(int64_t w, int64_t g, int64_t i) const { return first[w] + g * (n - w + 1) + i; }
  T* span(int64_t w, int64_t g, int64_t i) { return spans.data() + (row(w, g, i) - first[2]) * N; }
  const T* left(int64_t g, int64_t i, int64_t j) const { return sides.data() + row(j - i, g, i) * 2 * N; }
  const T* right(int64_t g, int64_t i, int64_t j) const { return left(g, i, j) + N; }
  int64_t at(int64_t g, int64_t i, int64_t j) const { return (g * (n + 1) + i) * (n + 1) + j; }
  void set_scale(int64_t g, int64_t i, int64_t j, double with, double bare) {
    scale[at(g, i, j)] = scale_by_end[at(g, j, i)] = with;
    without[at(g, i, j)] = without_by_end[at(g, j, i)] = bare;
  }
};

// out[a] = sum_k c[k] x[k][a] y[k][a]
template <typename T>
void combine(int64_t count, const T* c, const T* const* x, const T* const* y, int64_t N, T* out) {
  constexpr int64_t L = Vec<T>::size(), V = 4;
  int64_t a = 0;
  for (; a + V * L <= N; a += V * L) {
    Vec<T> sum[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[v] = Vec<T>(T(0));
    for (int64_t k = 0; k < count; ++k) {
      const Vec<T> weight(c[k]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sum[v] = at::vec::fmadd(weight * Vec<T>::loadu(x[k] + a + v * L), Vec<T>::loadu(y[k] + a + v * L), sum[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[v].store(out + a + v * L);
  }
  for (; a < N; a += L) {
    const int64_t rest = std::min(L, N - a);
    Vec<T> sum(T(0));
    for (int64_t k = 0; k < count; ++k)
      sum = at::vec::fmadd(Vec<T>(c[k]) * Vec<T>::loadu(x[k] + a, rest), Vec<T>::loadu(y[k] + a, rest), sum);
    sum.store(out + a, rest);
  }
}

// out[k] = e^(x[k])
template <typename T>
void exponentials(int64_t count, const T* x, T* out) {
  constexpr int64_t L = Vec<T>::size();
  for (int64_t k = 0; k < count; k += L) {
    const int64_t rest = std::min(L, count - k);
    Vec<T>::loadu(x + k, rest).exp().store(out + k, rest);
  }
}

template <typename T>
T largest(const T* x, int64_t N) {
  return at::vec::reduce_all<T>([](Vec<T> a, Vec<T> b) { return at::vec::maximum(a, b); }, x, N);
}

template <typename T>
T dot(const T* x, const T* y, int64_t N) {
  return at::vec::map2_reduce_all<T>([](Vec<T> a, Vec<T> b) { return a * b; }, [](Vec<T> a, Vec<T> b) { return a + b; },
                                     x, y, N);
}

// What a thread needs for one span at a time.
template <typename T>
struct Splits {
  std::vector<T> logs, weights;
  std::vector<const T*> x, y;
  explicit Splits(int64_t n) : logs(n + 1), weights(n + 1), x(n + 1), y(n + 1) {}
};

// ------------------------------------------------------------------------------------------------------------ inside

// Scores may be null. Returns nothing: chart.spans, .sides and the scales hold it all.
template <typename T>
void inside(Chart<T>& chart, const Rules<T>& rules, const T* emission, const T* scores, Splits<T>& splits) {
  const int64_t G = chart.G, n = chart.n, N = rules.N, P = rules.P;
  for (int64_t g = 0; g < G; ++g)
    for (int64_t i = 0; i < n; ++i) {
      const T* logs = emission + (g * n + i) * P;
      T* word = chart.words.data() + (g * n + i) * P;
      const T top = largest(logs, P);
      at::vec::map<T>([top](Vec<T> x) { return (x - Vec<T>(top)).exp(); }, word, logs, P);
      chart.set_scale(g, i, i + 1, top, top);
    }
  rules.up_words.times(G * n, chart.words.data(), P, chart.sides.data());
  for (int64_t w = 2; w <= n; ++w) {
    for (int64_t g = 0; g < G; ++g)
      for (int64_t i = 0; i + w <= n; ++i) {
        const int64_t j = i + w, count = w - 1;
        const double *a = &chart.scale[chart.at(g, i, i + 1)], *b = &chart.scale_by_end[chart.at(g, j, i + 1)];
        double top = a[0] + b[0];
        for (int64_t k = 1; k < count; ++k) top = std::max(top, a[k] + b[k]);
        for (int64_t k = 0; k < count; ++k) {
          splits.logs[k] = T(a[k] + b[k] - top);
          splits.x[k] = chart.left(g, i, i + 1 + k);
          splits.y[k] = chart.right(g, i + 1 + k, j);
        }
        exponentials(count, splits.logs.data(), splits.weights.data());
        T* span = chart.span(w, g, i);
        combine(count, splits.weights.data(), splits.x.data(), splits.y.data(), N, span);
        const T most = largest(span, N);
        at::vec::map<T>([most](Vec<T> x) { return x / Vec<T>(most); }, span, span, N);
        const double bare = top + std::log(double(most));
        chart.set_scale(g, i, j, bare + (scores ? double(scores[chart.at(g, i, j)]) : 0.0), bare);
      }
    if (w < n) rules.up_spans.times(chart.rows(w), chart.span(w, 0, 0), N, chart.sides.data() + chart.first[w] * 2 * N);
  }
}

// ----------------------------------------------------------------------------------------------------------- outside

// Where a group's results go; null: not wanted.
template <typename T>
struct Results {
  T *log_z, *spans, *d_root, *d_sides, *words;
  int64_t* labels;
};

// The posterior of each symbol of a span: inside times outside, which takes its place.
template <typename T>
void posterior(const Chart<T>& chart, const Results<T>& to, int64_t g, int64_t i, int64_t j, T* inside, const T* outside,
               int64_t columns) {
  if (to.spans) to.spans[chart.at(g, i, j)] = dot(inside, outside, columns);
  if (to.labels) {
    int64_t best = 0;
    for (int64_t a = 1; a < columns; ++a)
      if (inside[a] * outside[a] > inside[best] * outside[best]) best = a;
    to.labels[chart.at(g, i, j)] = best;
  }
}

template <typename T>
void outside(Chart<T>& chart, const Rules<T>& rules, const Results<T>& to, Splits<T>& splits) {
  const int64_t G = chart.G, n = chart.n, N = rules.N, P = rules.P;
  std::vector<T> sides(chart.rows(1) * 2 * N), rows(chart.rows(1) * std::max(N, P));
  for (int64_t g = 0; g < G; ++g) {
    T* span = chart.span(n, g, 0);
    const T z = dot(span, rules.root, N);
    to.log_z[g] = T(std::log(double(z)) + chart.scale[chart.at(g, 0, n)]);
    at::vec::map<T>([z](Vec<T> x) { return x / Vec<T>(z); }, rows.data(), rules.root, N);
    posterior(chart, to, g, 0, n, span, rows.data(), N);
    if (to.d_root)
      for (int64_t a = 0; a < N; ++a) to.d_root[a] += span[a] * rows[a];
    std::copy_n(rows.data(), N, span);
  }
  for (int64_t w = n - 1; w >= 1; --w) {
    for (int64_t g = 0; g < G; ++g)
      for (int64_t i = 0; i + w <= n; ++i) {
        const int64_t j = i + w, right_of = n - j, left_of = i;
        const double here = chart.scale[chart.at(g, i, j)];
        T* side = sides.data() + (g * (n - w + 1) + i) * 2 * N;
        // as a left child: parents [i, k), whose right child is [j, k)
        const double *a = &chart.scale[chart.at(g, j, j)] + 1, *b = &chart.without[chart.at(g, i, j)] + 1;
        for (int64_t k = 0; k < right_of; ++k) {
          splits.logs[k] = T(here + a[k] - b[k]);
          splits.x[k] = chart.right(g, j, j + 1 + k);
          splits.y[k] = chart.span(w + 1 + k, g, i);
        }
        exponentials(right_of, splits.logs.data(), splits.weights.data());
        combine(right_of, splits.weights.data(), splits.x.data(), splits.y.data(), N, side);
        // as a right child: parents [k, j), whose left child is [k, i)
        a = &chart.scale_by_end[chart.at(g, i, 0)], b = &chart.without_by_end[chart.at(g, j, 0)];
        for (int64_t k = 0; k < left_of; ++k) {
          splits.logs[k] = T(here + a[k] - b[k]);
          splits.x[k] = chart.left(g, k, i);
          splits.y[k] = chart.span(j - k, g, k);
        }
        exponentials(left_of, splits.logs.data(), splits.weights.data());
        combine(left_of, splits.weights.data(), splits.x.data(), splits.y.data(), N, side + N);
      }
    const int64_t columns = w == 1 ? P : N;
    T* inside = w == 1 ? chart.words.data() : chart.span(w, 0, 0);
    (w == 1 ? rules.down_words : rules.down_spans).times(chart.rows(w), sides.data(), 2 * N, rows.data());
    if (to.d_sides)
      PackedFactor<T>(inside, columns, chart.rows(w), columns, false, rules.narrow)
          .add_transposed(2 * N, sides.data(), 2 * N, to.d_sides + (w == 1 ? N : 0), rules.S);
    for (int64_t g = 0; g < G; ++g)
      for (int64_t i = 0; i + w <= n; ++i) {
        const int64_t r = (g * (n - w + 1) + i) * columns;
        posterior(chart, to, g, i, i + w, inside + r, rows.data() + r, columns);
        if (w == 1 && to.words)
          at::vec::map2<T>([](Vec<T> x, Vec<T> y) { return x * y; }, to.words + r, inside + r, rows.data() + r, P);
      }
    std::copy_n(rows.data(), chart.rows(w) * columns, inside);
  }
}

// --------------------------------------------------------------------------------------------------------------- host

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> chart(const Tensor& root, const Tensor& sides,
                                                                 const Tensor& emission,
                                                                 const std::optional<Tensor>& scores, bool counts,
                                                                 bool labels, bool narrow) {
  const int64_t B = emission.size(0), n = emission.size(1), P = emission.size(2), N = root.size(0), S = N + P;
  TORCH_CHECK(n >= 2, "chart: sentences of at least two words are needed");
  TORCH_CHECK(!narrow || (has_bfloat16 && emission.scalar_type() == at::kFloat), "chart: no bfloat16 here");
  TORCH_CHECK(sides.dim() == 2 && sides.size(0) == 2 * N && sides.size(1) == S, "chart: sides must be 2N x (N + P)");
  for (const Tensor* tensor : {&root, &sides, &emission}) {
    TORCH_CHECK(tensor->is_contiguous() && tensor->scalar_type() == emission.scalar_type(), "chart: contiguous, one type");
  }
  if (scores) {
    TORCH_CHECK(scores->is_contiguous() && scores->scalar_type() == emission.scalar_type() &&
                    scores->sizes() == at::IntArrayRef({B, n + 1, n + 1}),
                "chart: scores must be B x (n + 1) x (n + 1)");
  }
  const auto options = emission.options();
  const int64_t rows = n * (n + 1) / 2;
  const int64_t most = std::clamp<int64_t>(group_bytes / (rows * 3 * N * emission.element_size()), 1, most_sentences);
  const int64_t even = B <= most ? 1 : (B + 2 * most - 1) / (2 * most) * 2;  // so that two threads have equal work
  const int64_t size = (B + even - 1) / even, groups = (B + size - 1) / size;
  Tensor log_z = at::empty({B}, options), spans = at::zeros({B, n + 1, n + 1}, options);
  Tensor d_root = at::zeros({counts ? groups : 0, N}, options), d_sides = at::zeros({counts ? groups : 0, 2 * N, S}, options);
  Tensor words = at::empty({counts ? B : 0, n, P}, options);
  Tensor names = labels ? at::full({B, n + 1, n + 1}, -1, options.dtype(at::kLong)) : at::empty({0}, options.dtype(at::kLong));

  AT_DISPATCH_FLOATING_TYPES(emission.scalar_type(), "chart", [&] {
    using T = scalar_t;
    const Rules<T> rules(N, P, root.const_data_ptr<T>(), sides.const_data_ptr<T>(), narrow);
    const T *e = emission.const_data_ptr<T>(), *s = scores ? scores->const_data_ptr<T>() : nullptr;
    at::parallel_for(0, groups, 1, [&](int64_t begin, int64_t end) {
      Splits<T> splits(n);
      for (int64_t k = begin; k < end; ++k) {
        const int64_t b = k * size, G = std::min(size, B - b), square = (n + 1) * (n + 1);
        Chart<T> chart(G, n, N, P);
        const Results<T> to{log_z.mutable_data_ptr<T>() + b,
                            spans.mutable_data_ptr<T>() + b * square,
                            counts ? d_root.mutable_data_ptr<T>() + k * N : nullptr,
                            counts ? d_sides.mutable_data_ptr<T>() + k * 2 * N * S : nullptr,
                            counts ? words.mutable_data_ptr<T>() + b * n * P : nullptr,
                            labels ? names.mutable_data_ptr<int64_t>() + b * square : nullptr};
        inside(chart, rules, e + b * n * P, s ? s + b * square : nullptr, splits);
        outside(chart, rules, to, splits);
      }
    });
  });
  return {log_z, spans, names, d_root.sum(0), d_sides.sum(0), words};
}

}  // namespace

TORCH_LIBRARY(onlstm_chart, library) {
  library.def(
      "chart(Tensor root, Tensor sides, Tensor emission, Tensor? scores, bool counts, bool labels, bool narrow)"
      " -> (Tensor log_z, Tensor spans, Tensor labels, Tensor d_root, Tensor d_sides, Tensor words)");
  library.def("has_bfloat16() -> bool", [] { return has_bfloat16; });
}
TORCH_LIBRARY_IMPL(onlstm_chart, CPU, library) { library.impl("chart", chart); }
