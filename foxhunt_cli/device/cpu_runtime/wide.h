// Vectors as wide as a register of this processor, and the one operation on them that the language does not have.
#pragma once

#include <string.h>
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace fh {

#if defined(__FMA__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
template <class T> struct WideOf { typedef T type __attribute__((vector_size(VECTOR_BYTES))); };
template <class T> using Wide = typename WideOf<T>::type;
template <class T> constexpr int lanes = VECTOR_BYTES / int(sizeof(T));

// From any address.
template <class V, class T> inline V load_wide(const T* from) {
    V v;
    memcpy(&v, from, sizeof v);
    return v;
}

// In a register from here on: compilers would load a value anew for each of its uses.
template <class V> inline void keep(V& v) {
#if defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
}

// a * b + c, rounded once in every lane.
#if defined(__FMA__)
inline __m256 multiply_add(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256d multiply_add(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#elif defined(__aarch64__)
inline float32x4_t multiply_add(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
inline float64x2_t multiply_add(float64x2_t a, float64x2_t b, float64x2_t c) { return vfmaq_f64(c, a, b); }
#else
inline Wide<float> multiply_add(Wide<float> a, Wide<float> b, Wide<float> c) {
    for (int i = 0; i < lanes<float>; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
inline Wide<double> multiply_add(Wide<double> a, Wide<double> b, Wide<double> c) {
    for (int i = 0; i < lanes<double>; ++i) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}
#endif

} // namespace fh
