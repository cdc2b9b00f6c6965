// Random numbers that follow from a seed and a place, so that a mask need not be kept and no thread waits for another.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

// A number in which every bit depends on every bit of x, at random.
inline uint32_t hash(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}
inline uint32_t hash(int64_t seed, int64_t a, int64_t b) {
  const auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  return hash(hash(hash(hash(low) ^ high) ^ static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b));
}

// Below it, a random number drops what it stands for.
inline uint32_t least_kept(double p) { return std::min(std::llround(p * 4294967296.0), 0xffffffffLL); }

// Numbers that are left, scaled. A loop of its own, which the compiler makes vectors of.
template <typename T>
__attribute__((noinline)) void drop_out(T* row, int64_t n, uint32_t key, uint32_t least, T scale) {
  for (uint32_t j = 0; j < static_cast<uint32_t>(n); ++j) row[j] *= hash(key + 0x9e3779b9u * j) >= least ? scale : T(0);
}

}  // namespace
