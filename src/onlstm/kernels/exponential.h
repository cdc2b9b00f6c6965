// The exponential function, inline: the library's is a call that spills every register.
#pragma once
#include <ATen/cpu/vec/vec.h>

#define INLINE __attribute__((always_inline))

namespace {

template <typename T>
using Vec = at::vec::Vectorized<T>;

// e^x for x within ±limit (beyond it e^±limit), as 2^n e^r with x = n ln 2 + r and r small: n is found by adding a
// number so large that only whole ones can be told apart, and goes into the exponent's bits. Truncation error: 1.2e-7.
// In double, and where the bits lie otherwise, the library's own.
template <typename T>
INLINE inline Vec<T> exponential(Vec<T> x, T limit) {
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  if constexpr (std::is_same_v<T, float>) {
    using at::vec::fmadd;
    const Vec<T> large(12582912.0f);  // 1.5 * 2^23
    x = at::vec::clamp(x, Vec<T>(-limit), Vec<T>(limit));
    const Vec<T> shifted = fmadd(x, Vec<T>(1.44269504f), large), n = shifted - large;
    const Vec<T> r = fmadd(n, Vec<T>(2.12194440e-4f), fmadd(n, Vec<T>(-0.693359375f), x));
    Vec<T> power = fmadd(r, Vec<T>(1.0f / 720), Vec<T>(1.0f / 120));
    power = fmadd(fmadd(fmadd(power, r, Vec<T>(1.0f / 24)), r, Vec<T>(1.0f / 6)), r, Vec<T>(0.5f));
    power = fmadd(fmadd(power, r, Vec<T>(1.0f)), r, Vec<T>(1.0f));
    const auto bits = [](Vec<T> v) { return __builtin_bit_cast(Vec<int32_t>, v); };
    return __builtin_bit_cast(Vec<T>, bits(power) + (bits(shifted) << Vec<int32_t>(23)));
  }
#endif
  if constexpr (std::is_same_v<T, float>) x = at::vec::clamp(x, Vec<T>(-limit), Vec<T>(limit));
  return x.exp();
}

}  // namespace
