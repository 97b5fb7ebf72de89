// Target networks: Polyak averages, and how far they are behind.
#include "generated/isv_slots.cuh"
#include "include/eight.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/polyak.cuh"

#define CHUNK 32  // parameters of one entry of target_chunk (nets/params.py)

// rl_polyak: target += tau (online - target).
// launch: threads n_target_chunks*4, block 128
// updates: target_params
// One thread eight elements. params: the online vector; target_chunk [n_target_chunks]: which chunk of params each chunk
// of target_params [n_target_chunks * 32] follows. tau = 1 copies to rounding. Slots read: TARGET_TAU.
extern "C" __global__ void rl_polyak(const float* params, const int* target_chunk, const float* isv,
                                     float* target_params, int n_target_chunks) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, chunk = i / (CHUNK / EIGHT);
    if (chunk >= n_target_chunks) return;
    const int within = i % (CHUNK / EIGHT) * EIGHT;
    const eight online = eight_load(params + (long long)target_chunk[chunk] * CHUNK + within);
    const eight target = eight_load(target_params + (long long)i * EIGHT);
    eight_store(target_params + (long long)i * EIGHT, eight_fma(eight_of(isv[ISV_TARGET_TAU]), online - target, target));
}

// rl_difference_parts: sums of squares of w - target_w and of w, in parts.
// launch: threads NORM_PARTS, block 64
// One thread a part (polyak.cuh). w, target_w [n]; difference_parts, square_parts [NORM_PARTS].
extern "C" __global__ void rl_difference_parts(const float* w, const float* target_w, float* difference_parts,
                                               float* square_parts, int n, int NORM_PARTS) {
    const int part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= NORM_PARTS) return;
    difference_parts[part] = norm_part<true>(w, target_w, part, NORM_PARTS, n);
    square_parts[part] = norm_part<false>(w, w, part, NORM_PARTS, n);
}

// rl_l2_diff_norm: divergence of the C51 head from its target, |W - W_target| / |W|, into its EMA.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. difference_parts, square_parts [NORM_PARTS]. All-zero weights: divergence 0, no signal.
// Slots written: Q_DIVERGENCE_EMA.
extern "C" __global__ void rl_l2_diff_norm(const float* difference_parts, const float* square_parts, float* isv,
                                           int NORM_PARTS) {
    __shared__ float scratch[32];
    float difference = 0.0f, square = 0.0f;
    for (int i = threadIdx.x; i < NORM_PARTS; i += blockDim.x) {
        difference += difference_parts[i];
        square += square_parts[i];
    }
    difference = block_sum(difference, scratch);
    square = block_sum(square, scratch);
    if (threadIdx.x == 0 && !(square == 0.0f)) {
        isv[ISV_Q_DIVERGENCE_EMA] = norm_ema(isv[ISV_Q_DIVERGENCE_EMA], sqrtf(difference / square));
    }
}
