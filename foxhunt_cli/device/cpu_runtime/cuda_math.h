// CUDA's floating-point functions, by declaration: the compiler knows the names as builtins, libm has the bodies.
//
// With FOXHUNT_DOUBLE the same kernels compute in double, for finite differences: from here on `float` means double
// and every f-suffixed function is its double namesake.
#pragma once

#ifdef FOXHUNT_DOUBLE
#define float double
#define acosf acos
#define asinf asin
#define atanf atan
#define atan2f atan2
#define cbrtf cbrt
#define ceilf ceil
#define copysignf copysign
#define cosf cos
#define coshf cosh
#define erff erf
#define erfcf erfc
#define exp2f exp2
#define expf exp
#define expm1f expm1
#define fabsf fabs
#define fdimf fdim
#define floorf floor
#define fmaf fma
#define fmodf fmod
#define hypotf hypot
#define ldexpf ldexp
#define lgammaf lgamma
#define log10f log10
#define log1pf log1p
#define log2f log2
#define logf log
#define nanf nan
#define nearbyintf nearbyint
#define powf pow
#define rintf rint
#define roundf round
#define sinf sin
#define sinhf sinh
#define sqrtf sqrt
#define tanf tan
#define tanhf tanh
#define tgammaf tgamma
#define truncf trunc
#endif

extern "C" {
float acosf(float) noexcept;
float asinf(float) noexcept;
float atanf(float) noexcept;
float atan2f(float, float) noexcept;
float cbrtf(float) noexcept;
float ceilf(float) noexcept;
float copysignf(float, float) noexcept;
float cosf(float) noexcept;
float coshf(float) noexcept;
float erff(float) noexcept;
float erfcf(float) noexcept;
float exp2f(float) noexcept;
float expf(float) noexcept;
float expm1f(float) noexcept;
float fabsf(float) noexcept;
float fdimf(float, float) noexcept;
float floorf(float) noexcept;
float fmaf(float, float, float) noexcept;
float fmodf(float, float) noexcept;
float hypotf(float, float) noexcept;
float ldexpf(float, int) noexcept;
float lgammaf(float) noexcept;
float log10f(float) noexcept;
float log1pf(float) noexcept;
float log2f(float) noexcept;
float logf(float) noexcept;
float nanf(const char*) noexcept;
float nearbyintf(float) noexcept;
float powf(float, float) noexcept;
float rintf(float) noexcept;
float roundf(float) noexcept;
float sinf(float) noexcept;
float sinhf(float) noexcept;
float sqrtf(float) noexcept;
float tanf(float) noexcept;
float tanhf(float) noexcept;
float tgammaf(float) noexcept;
float truncf(float) noexcept;

double acos(double) noexcept;
double asin(double) noexcept;
double atan(double) noexcept;
double cbrt(double) noexcept;
double ceil(double) noexcept;
double cos(double) noexcept;
double cosh(double) noexcept;
double erf(double) noexcept;
double erfc(double) noexcept;
double exp(double) noexcept;
double exp2(double) noexcept;
double expm1(double) noexcept;
double fabs(double) noexcept;
double floor(double) noexcept;
double log(double) noexcept;
double log10(double) noexcept;
double log1p(double) noexcept;
double log2(double) noexcept;
double rint(double) noexcept;
double round(double) noexcept;
double sin(double) noexcept;
double sinh(double) noexcept;
double sqrt(double) noexcept;
double tan(double) noexcept;
double tanh(double) noexcept;
double trunc(double) noexcept;
double atan2(double, double) noexcept;
double copysign(double, double) noexcept;
double fmod(double, double) noexcept;
double pow(double, double) noexcept;
double fma(double, double, double) noexcept;
}

#ifndef FOXHUNT_DOUBLE // CUDA overloads the plain names; without these a float would be computed in double, unseen
#define FH_OVERLOAD_1(name) static inline float name(float x) { return name##f(x); }
#define FH_OVERLOAD_2(name) static inline float name(float x, float y) { return name##f(x, y); }
FH_OVERLOAD_1(acos)
FH_OVERLOAD_1(asin)
FH_OVERLOAD_1(atan)
FH_OVERLOAD_1(cbrt)
FH_OVERLOAD_1(ceil)
FH_OVERLOAD_1(cos)
FH_OVERLOAD_1(cosh)
FH_OVERLOAD_1(erf)
FH_OVERLOAD_1(erfc)
FH_OVERLOAD_1(exp)
FH_OVERLOAD_1(exp2)
FH_OVERLOAD_1(expm1)
FH_OVERLOAD_1(fabs)
FH_OVERLOAD_1(floor)
FH_OVERLOAD_1(log)
FH_OVERLOAD_1(log10)
FH_OVERLOAD_1(log1p)
FH_OVERLOAD_1(log2)
FH_OVERLOAD_1(rint)
FH_OVERLOAD_1(round)
FH_OVERLOAD_1(sin)
FH_OVERLOAD_1(sinh)
FH_OVERLOAD_1(sqrt)
FH_OVERLOAD_1(tan)
FH_OVERLOAD_1(tanh)
FH_OVERLOAD_1(trunc)
FH_OVERLOAD_2(atan2)
FH_OVERLOAD_2(copysign)
FH_OVERLOAD_2(fmod)
FH_OVERLOAD_2(pow)
static inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
#endif

// A number wins over a NaN, as on a GPU. Written out because the compiler calls libm for its own fmaxf.
template <class T> static inline T fh_max(T a, T b) { return a >= b || b != b ? a : b; }
template <class T> static inline T fh_min(T a, T b) { return a <= b || b != b ? a : b; }
#define fmaxf fh_max<float>
#define fminf fh_min<float>
#define fmax fh_max<double>
#define fmin fh_min<double>

static inline float __saturatef(float x) { return fminf(fmaxf(x, 0), 1); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline long long __float2ll_rn(float x) { return (long long)rintf(x); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }

template <class T> static inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> static inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> static inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> static inline bool signbit(T x) { return __builtin_signbit(x); }
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))

#define FH_MIN_MAX(T) \
    static inline T min(T a, T b) { return a < b ? a : b; } \
    static inline T max(T a, T b) { return a > b ? a : b; }
FH_MIN_MAX(int)
FH_MIN_MAX(unsigned)
FH_MIN_MAX(long long)
FH_MIN_MAX(unsigned long long)
#undef FH_MIN_MAX
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
#ifndef FOXHUNT_DOUBLE
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
#endif
static inline int abs(int x) { return x < 0 ? -x : x; }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline long long llabs(long long x) { return abs(x); }
static inline float abs(float x) { return fabsf(x); }

template <class T> static inline T __ldg(const T* p) { return *p; }

struct alignas(2 * sizeof(float)) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(4 * sizeof(float)) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct int3 { int x, y, z; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) longlong2 { long long x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
