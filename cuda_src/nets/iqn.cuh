// Implicit quantile network (Dabney 2018): Z_tau(h, p, a) = (h * phi(tau)) . W[:, p, a] + b[p, a],
// phi(tau) = ReLU(cos(i pi tau) W_phi + b_phi), i = 0..63.
//
// One set of taus serves the whole batch, drawn anew every update: each sample's quantile loss keeps its expectation,
// and phi costs [N_TAU, 64] instead of [rows, N_TAU, 64]. For the columns (p, a) a row needs, its "slots",
// Z[tau] = sum_k (h_k W_k,column) phi_tau,k. Gradients: with M_tau,k = sum over the rows of a class of dL/dZ_tau h_k,
// those of W are sum_tau phi_tau,k M_tau,k and those of phi sum over columns of W_k,column M_tau,k: one sum over rows.
// slots = 11 (path targets: every action at the row's class) or 1 (executed action). iqn_column [rows, slots] names
// the column p * 11 + a.
//
// Here: what its kernels share, the cosine of the embedding and the pairwise loss.
#pragma once
#include "generated/structure.cuh"
#include "include/eight.cuh"
#include "include/math.cuh"

#define IQN_COSINES 64
#define IQN_KAPPA 1.0f  // Huber threshold, scaled reward

// cos(pi x), |x| below 2^22: x minus the nearest integer is exact, so what is left is a polynomial on a quarter turn
// (least maximal error 1.1e-7) and a sign. fmaf and integer operations only: loops over it vectorise, and the bits are
// the same on every device. NaN stays NaN.
static __device__ inline float cos_pi(float x) {
#ifdef FOXHUNT_DOUBLE
    return cosf(3.14159265358979323846 * x);
#else
    const float shifted = x + 12582912.0f;  // 1.5 x 2^23: the nearest integer in the low bits of the mantissa
    const float r = x - (shifted - 12582912.0f);
    const float square = r * r;
    float y = fmaf(square, -0.024396324f, 0.23493731f);
    y = fmaf(y, square, -1.335212f);
    y = fmaf(y, square, 4.0587091f);
    y = fmaf(y, square, -4.934802f);
    y = fmaf(y, square, 1.0f);
    return __int_as_float((int)((unsigned int)__float_as_int(y) ^ ((unsigned int)__float_as_int(shifted) << 31)));
#endif
}

// Into [-1, 1]. On a GPU in two instructions, which turn NaN into a number: the loss must show it.
static __device__ inline float clamp_to_unit(float v) {
#ifdef __CUDACC_RTC__
    return fminf(fmaxf(v, -1.0f), 1.0f);
#else
    return clampf(v, -1.0f, 1.0f);
#endif
}

// One pair of quantile Huber regression, kappa = 1: delta = target - z of quantile tau. Adds |tau - 1(delta < 0)|
// Huber(delta) to *loss and its slope with respect to delta to *pull. Of a NaN only *loss is sure to show it.
static __device__ inline void quantile_huber_pair(float target, float z, float tau, float* loss, float* pull) {
    const float delta = target - z;
    const float side = delta < 0.0f ? 1.0f - tau : tau;
    const float slope = clamp_to_unit(delta), share = side * slope;
    *loss = fmaf(share, fmaf(-0.5f, slope, delta), *loss);  // Huber = slope (delta - slope / 2)
    *pull += share;
}

// The same for eight quantiles at once; a NaN shows in both.
static __device__ inline void quantile_huber_eight(eight target, eight z, eight tau, eight& loss, eight& pull) {
    const eight delta = target - z, one = eight_of(1.0f);
    const eight side = eight_where_above(eight_of(0.0f), delta, one - tau, tau);
    const eight slope = eight_min(one, eight_max(-one, delta)), share = side * slope;
    loss = eight_fma(share, eight_fma(eight_of(-0.5f), slope, delta), loss);
    pull = pull + share;
}
