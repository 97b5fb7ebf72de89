// The optimiser: gradient norms in fixed order, the finite check, global norm clip, Adam.
//
// A span is a contiguous part of the flat parameter vector that one update owns (the on-policy tensors, or the
// critic's). group_code, branch_code and encoder_code hold one byte per CHUNK parameters.
#include "include/eight.cuh"
#include "include/reduce.cuh"
#include "nets/adam.cuh"

#define NORM_EMA_RATE 0.05f

// rl_grad_chunk_squares: sum of squares of each chunk of gradients.
// launch: threads n_chunks, block 64
// One thread a chunk: eight sums of every eighth element, then their sum. grads [n_chunks * 32]; chunk_square [n_chunks].
extern "C" __global__ void rl_grad_chunk_squares(const float* grads, float* chunk_square, int n_chunks) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= n_chunks) return;
    eight sum = eight_of(0.0f);
    for (int i = 0; i < CHUNK; i += EIGHT) {
        const eight g = eight_load(grads + (long long)c * CHUNK + i);
        sum = eight_fma(g, g, sum);
    }
    chunk_square[c] = eight_sum(sum);
}

// rl_grad_norms: norms of branches and heads, the encoder's clip factor, and whether the update may be applied.
// launch: blocks 1, block 128
// updates: isv, adam_step, fault
// One block, fixed order. chunk_square, group_code, branch_code, encoder_code [n_chunks]; nonfinite_parts [8]; adam_step [6] updates done
// per group; fault [2] = consecutive refused updates, sticky stop flag; update_control [2 + 12] = apply (1/0), encoder
// clip factor, then per group 1 / (1 - beta1^n) and 1 / sqrt(1 - beta2^n).
// publish != 0 (the first update of an iteration): branch norms are written and the count of bad numbers starts anew;
// otherwise it is added to. norms = 0: a span without encoder and policy (the critic's), of which no norm is wanted. A
// non-finite square or loss refuses the whole update; three in a row set the sticky flag and nothing is updated after it.
// Slots written: PI_GRAD_NORM_EMA, V_GRAD_NORM_EMA, BRANCH_GRAD_NORM_*, NONFINITE_COUNT. Read: GRAD_CLIP_NORM, ADAM_BETA*.
extern "C" __global__ void rl_grad_norms(const float* chunk_square, const unsigned char* group_code,
                                         const unsigned char* branch_code, const unsigned char* encoder_code,
                                         const int* nonfinite_parts, unsigned int* adam_step, unsigned int* fault, float* update_control,
                                         float* isv, int n_chunks, int publish, int norms) {
    __shared__ float scratch[32];
    float branch[N_BRANCHES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    float encoder = 0.0f, pi = 0.0f, v = 0.0f, bad = 0.0f;
    if (threadIdx.x < N_NONFINITE_PARTS) bad = (float)nonfinite_parts[threadIdx.x];
    unsigned int seen = 0u;  // bit g: this thread met a chunk of group g
    for (int c = threadIdx.x; c < n_chunks; c += blockDim.x) {
        const float s = chunk_square[c];
        if (!is_finite(s)) bad += 1.0f;
        seen |= 1u << group_code[c];
        if (!norms) continue;
        for (int k = 0; k < N_BRANCHES; ++k) branch[k] += branch_code[c] == k ? s : 0.0f;
        encoder += encoder_code[c] ? s : 0.0f;
        pi += group_code[c] == GROUP_PI ? s : 0.0f;
        v += group_code[c] == GROUP_V ? s : 0.0f;
    }
    for (int k = 0; norms && k < N_BRANCHES; ++k) branch[k] = block_sum(branch[k], scratch);
    if (norms) {
        encoder = block_sum(encoder, scratch);
        pi = block_sum(pi, scratch);
        v = block_sum(v, scratch);
    }
    bad = block_sum(bad, scratch);
    bool present[N_GROUPS];
    for (int g = 0; g < N_GROUPS; ++g) present[g] = __syncthreads_or((int)(seen >> g & 1u)) != 0;
    if (threadIdx.x != 0) return;

    isv[ISV_NONFINITE_COUNT] = publish ? bad : isv[ISV_NONFINITE_COUNT] + bad;
    fault[0] = bad > 0.0f ? fault[0] + 1u : 0u;
    if (fault[0] >= FAULT_LIMIT) fault[1] = 1u;
    const bool apply = bad == 0.0f && fault[1] == 0u;
    update_control[0] = apply ? 1.0f : 0.0f;
    if (!apply) return;

    const float norm = sqrtf(encoder), cap = isv[ISV_GRAD_CLIP_NORM];
    update_control[1] = norm > cap ? cap / norm : 1.0f;
    for (int k = 0; publish && k < N_BRANCHES; ++k) isv[ISV_BRANCH_GRAD_NORM_VSN + k] = sqrtf(branch[k]);
    const float old_pi = isv[ISV_PI_GRAD_NORM_EMA], old_v = isv[ISV_V_GRAD_NORM_EMA];
    if (present[GROUP_PI]) {
        isv[ISV_PI_GRAD_NORM_EMA] = old_pi == 0.0f ? sqrtf(pi) : ema(old_pi, sqrtf(pi), NORM_EMA_RATE);
    }
    if (present[GROUP_V]) {
        isv[ISV_V_GRAD_NORM_EMA] = old_v == 0.0f ? sqrtf(v) : ema(old_v, sqrtf(v), NORM_EMA_RATE);
    }
    for (int g = 0; g < N_GROUPS; ++g) {
        if (!present[g]) continue;
        adam_corrections(isv, (float)++adam_step[g], update_control + 2 + 2 * g, update_control + 3 + 2 * g);
    }
}

// rl_adam_step: Adam with bias correction and decoupled weight decay (Kingma 2015, Loshchilov 2019).
// launch: threads n_chunks*4, block 128
// updates: params, adam_m, adam_v
// One thread eight parameters. params, grads, adam_m, adam_v [n_chunks * 32]; codes [n_chunks]; update_control as above.
//   rate = LR of the group x multiplier of the branch;  w -= rate (m^ / (sqrt(v^) + eps) + decay w)
// Slots read: LR_BCE..LR_AUX, IQN_LR, BRANCH_LR_MULT_*, ADAM_BETA1, ADAM_BETA2, ADAM_EPS, WEIGHT_DECAY.
extern "C" __global__ void rl_adam_step(float* params, const float* grads, float* adam_m, float* adam_v,
                                        const unsigned char* group_code, const unsigned char* branch_code,
                                        const unsigned char* encoder_code, const float* update_control,
                                        const float* isv, int n_chunks) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, chunk = i / (CHUNK / EIGHT);
    if (chunk >= n_chunks || update_control[0] == 0.0f) return;
    const AdamRule rule = adam_rule(isv, update_control, group_code[chunk], branch_code[chunk]);
    const float clip = encoder_code[chunk] ? update_control[1] : 1.0f;
    const long long at = (long long)i * EIGHT;
    eight m = eight_load(adam_m + at), v = eight_load(adam_v + at);
    const eight w = adam_step(rule, eight_load(params + at), eight_load(grads + at) * clip, &m, &v);
    eight_store(params + at, w);
    eight_store(adam_m + at, m);
    eight_store(adam_v + at, v);
}
