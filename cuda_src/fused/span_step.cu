// The optimiser of a span in two kernels: squares of its gradients, then norms and the step in every block.
//
// Norms decide what every parameter does (refused, clipped), so every block of the second kernel adds them up for itself,
// in the same order; block 0 alone writes counters and slots. What it counts up was read in the kernel before: Adam's
// bias corrections and the sticky flag stand in update_control.
#include "include/reduce.cuh"
#include "nets/adam.cuh"
#include "nets/polyak.cuh"

#define SPAN_THREADS 512
#define SPAN_ELEMENTS 2048  // of a block
#define SPAN_EACH (SPAN_ELEMENTS / SPAN_THREADS)

// rl_span_squares: sum of squares of each chunk of gradients, and what decides the coming step.
// launch: blocks (n_chunks+31)/32, block 256
// fuses: rl_grad_chunk_squares
// Eight threads a chunk: each takes every eighth element, then halves, quarters, the last pair, as rl_grad_chunk_squares
// does. grads [n_chunks * 32]; chunk_square [n_chunks]; adam_step [6] updates done per group; fault [2];
// update_control [2 + 12]: 1 unless the sticky flag is set, 1, then per group the bias corrections of its next update.
// Slots read: ADAM_BETA1, ADAM_BETA2.
extern "C" __global__ void rl_span_squares(const float* grads, const unsigned int* adam_step, const unsigned int* fault,
                                           const float* isv, float* chunk_square, float* update_control, int n_chunks) {
    const int chunk = blockIdx.x * 32 + threadIdx.x / 8, u = threadIdx.x % 8;
    float sum = 0.0f;
    for (int i = u; i < CHUNK && chunk < n_chunks; i += 8) {
        const float g = grads[(long long)chunk * CHUNK + i];
        sum = fmaf(g, g, sum);
    }
    for (int step = 4; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (u == 0 && chunk < n_chunks) chunk_square[chunk] = sum;
    if (blockIdx.x != 0) return;
    const int group = threadIdx.x;
    if (group < N_GROUPS) {
        adam_corrections(isv, (float)(adam_step[group] + 1u), update_control + 2 + 2 * group,
                         update_control + 3 + 2 * group);
    }
    if (group == 0) {
        update_control[0] = fault[1] == 0u ? 1.0f : 0.0f;
        update_control[1] = 1.0f;
    }
}

// What the chunks of a span add up to.
struct SpanNorms {
    float branch[N_BRANCHES], encoder, pi, v, bad;
    unsigned int groups;  // bit g: the span has parameters of group g
};

static __device__ inline SpanNorms span_norms(const float* chunk_square, const unsigned char* group_code,
                                              const unsigned char* branch_code, const unsigned char* encoder_code,
                                              const int* nonfinite_parts, float* scratch, int n_chunks, int norms) {
    SpanNorms sums = {{0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, 0.0f, 0.0f, 0.0f, 0.0f, 0u};
    if (threadIdx.x < N_NONFINITE_PARTS) sums.bad = (float)nonfinite_parts[threadIdx.x];
#pragma unroll 4
    for (int c = threadIdx.x; c < n_chunks; c += blockDim.x) {
        const float s = chunk_square[c];
        const int group = group_code[c], branch = branch_code[c];
        if (!is_finite(s)) sums.bad += 1.0f;
        sums.groups |= 1u << group;
        if (!norms) continue;
        for (int k = 0; k < N_BRANCHES; ++k) sums.branch[k] += branch == k ? s : 0.0f;
        sums.encoder += encoder_code[c] ? s : 0.0f;
        sums.pi += group == GROUP_PI ? s : 0.0f;
        sums.v += group == GROUP_V ? s : 0.0f;
    }
    sums.bad = block_sum(sums.bad, scratch);
    if (norms) sums.encoder = block_sum(sums.encoder, scratch);
    if (blockIdx.x != 0) return sums;  // the rest is for the slots
    for (int k = 0; norms && k < N_BRANCHES; ++k) sums.branch[k] = block_sum(sums.branch[k], scratch);
    if (norms) {
        sums.pi = block_sum(sums.pi, scratch);
        sums.v = block_sum(sums.v, scratch);
    }
    unsigned int groups = 0u;
    for (int g = 0; g < N_GROUPS; ++g) groups |= __syncthreads_or((int)(sums.groups >> g & 1u)) ? 1u << g : 0u;
    sums.groups = groups;
    return sums;
}

// Counters and slots of an update; by one thread.
static __device__ inline void tell_of_step(const SpanNorms& sums, float* isv, unsigned int* adam_step,
                                           unsigned int* fault, bool apply, int publish) {
    isv[ISV_NONFINITE_COUNT] = publish ? sums.bad : isv[ISV_NONFINITE_COUNT] + sums.bad;
    fault[0] = sums.bad > 0.0f ? fault[0] + 1u : 0u;
    if (fault[0] >= FAULT_LIMIT) fault[1] = 1u;
    if (!apply) return;
    for (int k = 0; publish && k < N_BRANCHES; ++k) isv[ISV_BRANCH_GRAD_NORM_VSN + k] = sqrtf(sums.branch[k]);
    const unsigned int groups = sums.groups;
    if (groups >> GROUP_PI & 1u) isv[ISV_PI_GRAD_NORM_EMA] = norm_ema(isv[ISV_PI_GRAD_NORM_EMA], sqrtf(sums.pi));
    if (groups >> GROUP_V & 1u) isv[ISV_V_GRAD_NORM_EMA] = norm_ema(isv[ISV_V_GRAD_NORM_EMA], sqrtf(sums.v));
    for (int g = 0; g < N_GROUPS; ++g) adam_step[g] += groups >> g & 1u;
}

// rl_span_step: norms, the finite check, the encoder's clip and Adam over a span.
// launch: blocks (n_chunks*32+2047)/2048, block 512
// chain: 9 us
// updates: params, adam_m, adam_v, isv, adam_step, fault
// fuses: rl_grad_norms, rl_adam_step
// Block 0 counts and tells besides. params, grads, adam_m, adam_v [n_chunks * 32]; chunk_square, group_code,
// branch_code, encoder_code [n_chunks]; nonfinite_parts [8]; update_control of rl_span_squares; publish, norms as in
// rl_grad_norms. Slots written: PI_GRAD_NORM_EMA, V_GRAD_NORM_EMA, BRANCH_GRAD_NORM_*, NONFINITE_COUNT. Read:
// GRAD_CLIP_NORM, LR_BCE..LR_AUX, IQN_LR, BRANCH_LR_MULT_*, ADAM_*, WEIGHT_DECAY.
extern "C" __global__ void rl_span_step(const float* grads, const float* chunk_square, const unsigned char* group_code,
                                        const unsigned char* branch_code, const unsigned char* encoder_code,
                                        const int* nonfinite_parts, const float* update_control, float* params,
                                        float* adam_m, float* adam_v, float* isv, unsigned int* adam_step,
                                        unsigned int* fault, int n_chunks, int publish, int norms) {
    __shared__ float scratch[32];
    const int first = blockIdx.x * SPAN_ELEMENTS + threadIdx.x, all = n_chunks * CHUNK;
    float w[SPAN_EACH], m[SPAN_EACH], v[SPAN_EACH], g[SPAN_EACH];
    unsigned char group[SPAN_EACH], branch[SPAN_EACH], of_encoder[SPAN_EACH];
#pragma unroll
    for (int k = 0; k < SPAN_EACH; ++k) {  // what a thread steps is under way before it is decided whether and how far
        const int own = first + k * SPAN_THREADS, i = own < all ? own : blockIdx.x * SPAN_ELEMENTS, chunk = i / CHUNK;
        w[k] = params[i], m[k] = adam_m[i], v[k] = adam_v[i], g[k] = grads[i];
        group[k] = group_code[chunk], branch[k] = branch_code[chunk], of_encoder[k] = encoder_code[chunk];
    }
    const SpanNorms sums = span_norms(chunk_square, group_code, branch_code, encoder_code, nonfinite_parts, scratch,
                                      n_chunks, norms);
    const bool apply = sums.bad == 0.0f && update_control[0] != 0.0f;
    const float norm = sqrtf(sums.encoder), cap = isv[ISV_GRAD_CLIP_NORM], clip = norm > cap ? cap / norm : 1.0f;
#pragma unroll
    for (int k = 0; k < SPAN_EACH; ++k) {
        const int i = first + k * SPAN_THREADS;
        if (!apply || i >= all) continue;
        const AdamRule rule = adam_rule(isv, update_control, group[k], branch[k]);
        params[i] = ::adam_step(rule, w[k], g[k] * (of_encoder[k] ? clip : 1.0f), &m[k], &v[k]);
        adam_m[i] = m[k];
        adam_v[i] = v[k];
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) tell_of_step(sums, isv, adam_step, fault, apply, publish);
}
