// The once-an-iteration care of the heads in three kernels: spectral caps of both, PopArt.
#include "generated/isv_slots.cuh"
#include "nets/popart.cuh"
#include "nets/spectral.cuh"

#define CARE_ELEMENTS 1024  // weights of a block that caps

// rl_care_right: v = W^T u of both heads.
// launch: blocks (n_q + 31) // 32 + (n_pi + 31) // 32, block 128
// fuses: rl_spectral_right
// A block has 32 columns of a head, a warp each of their four groups of rows; the C51 head's n_q columns first. w_q, w_pi
// [HIDDEN_DIM, n_*]; u_q, u_pi [HIDDEN_DIM]; v_q, v_pi [n_*], not of length 1 yet.
extern "C" __global__ void rl_care_right(const float* __restrict__ w_q, const float* __restrict__ w_pi,
                                         const float* __restrict__ u_q, const float* __restrict__ u_pi, float* v_q,
                                         float* v_pi, int n_q, int n_pi) {
    __shared__ float sums[SPECTRAL_GROUPS * SPECTRAL_COLUMNS];
    const int blocks_q = (n_q + SPECTRAL_COLUMNS - 1) / SPECTRAL_COLUMNS;
    const bool q = (int)blockIdx.x < blocks_q;
    const int block = q ? blockIdx.x : blockIdx.x - blocks_q, n = q ? n_q : n_pi;
    const int column = threadIdx.x % SPECTRAL_COLUMNS, j = block * SPECTRAL_COLUMNS + column;
    if (j < n) {
        sums[threadIdx.x] =
            spectral_right_group(q ? w_q : w_pi, q ? u_q : u_pi, n, j, threadIdx.x / SPECTRAL_COLUMNS);
    }
    __syncthreads();
    if (threadIdx.x >= SPECTRAL_COLUMNS || j >= n) return;
    float total = sums[column];
#pragma unroll
    for (int group = 1; group < SPECTRAL_GROUPS; ++group) total += sums[group * SPECTRAL_COLUMNS + column];
    (q ? v_q : v_pi)[j] = total;
}

// rl_care_left: u = W v / |v| of both heads, and PopArt.
// launch: blocks 2 * HIDDEN_DIM + 1, block 128
// chain: 7 us
// updates: isv, w_v, b_v, w_v_ctx, nonfinite_parts
// fuses: rl_spectral_unit, rl_spectral_left, rl_popart_update
// A block has a row of a head, its threads the 128 sums of rl_spectral_left; it measures v itself. The last block is
// rl_popart_update. left [2, HIDDEN_DIM]: u of both heads, not of length 1 yet.
extern "C" __global__ void rl_care_left(const float* __restrict__ w_q, const float* __restrict__ w_pi,
                                        const float* __restrict__ v_q, const float* __restrict__ v_pi,
                                        const float* moments, float* left, float* isv, float* w_v, float* b_v,
                                        float* w_v_ctx, int* nonfinite_parts, int part, int n_q, int n_pi, int n_w,
                                        int n_b, int n_ctx) {
    __shared__ float scratch[32];
    const int block = blockIdx.x;
    if (block == 2 * HIDDEN_DIM) {
        popart_update_block(moments, isv, w_v, b_v, w_v_ctx, nonfinite_parts, part, n_w, n_b, n_ctx);
        return;
    }
    const bool q = block < HIDDEN_DIM;
    const float *w = q ? w_q : w_pi, *v = q ? v_q : v_pi;
    const int n = q ? n_q : n_pi, r = block % HIDDEN_DIM;
    const float norm = spectral_norm_block(v, n, scratch);
    const float* row = w + (long long)r * n;
    float sum = 0.0f;
    for (int first = threadIdx.x; first < n; first += SPECTRAL_AHEAD * SPECTRAL_LANES) {
        float w_held[SPECTRAL_AHEAD], v_held[SPECTRAL_AHEAD];
        spectral_load(row, first, SPECTRAL_LANES, n, w_held);
        spectral_load(v, first, SPECTRAL_LANES, n, v_held);
#pragma unroll
        for (int k = 0; k < SPECTRAL_AHEAD; ++k) {
            const int j = first + k * SPECTRAL_LANES;
            if (j < n) sum = fmaf(w_held[k], spectral_unit_item(v_held[k], norm, j, n), sum);
        }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) left[(q ? 0 : HIDDEN_DIM) + r] = sum;
}

// rl_care_cap: sigma = |u|, u of length 1, W <- W cap / sigma where sigma is above the cap; both heads.
// launch: blocks (HIDDEN_DIM*n_q + 1023) // 1024 + (HIDDEN_DIM*n_pi + 1023) // 1024, block 128
// updates: isv, w_q, w_pi
// fuses: rl_spectral_cap, rl_spectral_unit
// A block has 1024 weights of a head and measures u itself; the first of a head writes u, its norm and the slot. Slots
// read: SPECTRAL_CAP; written: slot_q, slot_pi.
extern "C" __global__ void rl_care_cap(const float* left, float* w_q, float* w_pi, float* u_q, float* u_pi,
                                       float* norm_q, float* norm_pi, float* isv, int slot_q, int slot_pi, int n_q,
                                       int n_pi) {
    __shared__ float scratch[32];
    const int blocks_q = (HIDDEN_DIM * n_q + CARE_ELEMENTS - 1) / CARE_ELEMENTS;
    const bool q = (int)blockIdx.x < blocks_q;
    const int block = q ? blockIdx.x : blockIdx.x - blocks_q, n = HIDDEN_DIM * (q ? n_q : n_pi);
    const float* raw = left + (q ? 0 : HIDDEN_DIM);
    const float sigma = spectral_norm_block(raw, HIDDEN_DIM, scratch), cap = isv[ISV_SPECTRAL_CAP];
    if (block == 0) {
        float* u = q ? u_q : u_pi;
        for (int i = threadIdx.x; i < HIDDEN_DIM; i += blockDim.x) {
            u[i] = spectral_unit_item(raw[i], sigma, i, HIDDEN_DIM);
        }
        if (threadIdx.x == 0) {
            (q ? norm_q : norm_pi)[0] = sigma;
            isv[q ? slot_q : slot_pi] = sigma;
        }
    }
    if (!(sigma > cap)) return;
    float* w = q ? w_q : w_pi;
    const int end = (block + 1) * CARE_ELEMENTS < n ? (block + 1) * CARE_ELEMENTS : n;
    for (int i = block * CARE_ELEMENTS + threadIdx.x; i < end; i += blockDim.x) w[i] *= cap / sigma;
}
