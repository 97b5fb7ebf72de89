// What the critic teaches the actor in three kernels: mean action gap, gradients of every class, loss and agreement.
//
// The numbers of an item (row, class) are those of nets/distill.cu bit for bit; only means over rows are summed in
// another, fixed order. Values, logits and gradients of a block's rows are one stretch of memory each, so they come and
// go through shared memory in whole lines; rows of eleven floats meet no bank twice.
#include "nets/distill.cuh"

#define LESSON_THREADS 128
#define GAP_BLOCKS 128
#define LESSON_SUMS 3  // KL, rows that are not finite, rows that agree

// rl_action_gap_parts: sums over rows and classes of (max - mean) of E[Q] over the actions.
// launch: blocks 128, block 256
// fuses: rl_action_gap_rows, rl_action_gap
// One thread an item, in steps of the grid; then the block's fixed tree. ensemble_q [rows, P*11]; gap_parts [128].
extern "C" __global__ void rl_action_gap_parts(const float* ensemble_q, float* gap_parts, int rows, int P) {
    __shared__ float scratch[32];
    const long long items = (long long)rows * P;
    float sum = 0.0f;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < items; i += gridDim.x * blockDim.x) {
        sum += action_gap_of(ensemble_q + i * N_ACTIONS);
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) gap_parts[blockIdx.x] = sum;
}

// Copies n floats between memories, adjacent threads adjacent floats, eight of a thread on their way at a time.
static __device__ inline void copy_floats(float* to, const float* from, int n) {
    for (int i0 = threadIdx.x; i0 < n; i0 += 8 * LESSON_THREADS) {
        float v[8];
#pragma unroll
        for (int u = 0; u < 8; ++u) v[u] = i0 + u * LESSON_THREADS < n ? from[i0 + u * LESSON_THREADS] : 0.0f;
#pragma unroll
        for (int u = 0; u < 8; ++u) {
            if (i0 + u * LESSON_THREADS < n) to[i0 + u * LESSON_THREADS] = v[u];
        }
    }
}

// rl_policy_lesson: distillation and the reference policy, added to the gradient of pi's logits.
// launch: blocks (rows + 128/P - 1)/(128/P), block 128, shared 4*P*N_ACTIONS*(3*(128/P) + 1 + HEAD_CONTEXT_DIM)
// chain: 8 us
// updates: grad_pi_all
// fuses: rl_q_pi_distill_grad, rl_action_gap, rl_kl_reference_grad, rl_distill_kl, rl_q_pi_agree_b
// A block of 128/P rows, one thread an item (row, class). pi_all, b_pi, w_pi_ctx, context, position_class as in
// rl_pi_action_kernel; ensemble_q, grad_pi_all [rows, P*11]; next_class [P, 11]; pi_soft [rows, 11]; gap_parts [128];
// lesson_parts [blocks, 3] sums of the block's rows, ascending. all_classes, by_position and the formulas as in
// rl_q_pi_distill_grad and rl_kl_reference_grad.
// Slots read: Q_DISTILL_LAMBDA, Q_DISTILL_TEMPERATURE, KL_REF_BETA, KL_REF_HOLD.
extern "C" __global__ void __launch_bounds__(LESSON_THREADS) rl_policy_lesson(
    const float* pi_all, const float* b_pi, const float* w_pi_ctx, const float* context, const int* position_class,
    const float* ensemble_q, const signed char* next_class, const float* pi_soft, const float* gap_parts,
    const float* isv, float* grad_pi_all, float* lesson_parts, int rows, int P, int all_classes, int by_position) {
    extern __shared__ __align__(16) float staged[];
    __shared__ float scratch[32], kl_of[LESSON_THREADS];
    const int each = LESSON_THREADS / P, width = P * N_ACTIONS, row0 = blockIdx.x * each;
    const int count = rows - row0 < each ? rows - row0 : each;
    float *logits = staged, *q = logits + each * width, *grad = q + each * width, *bias = grad + each * width;
    float* context_weights = bias + width;
    copy_floats(logits, pi_all + (long long)row0 * width, count * width);
    copy_floats(q, ensemble_q + (long long)row0 * width, count * width);
    copy_floats(grad, grad_pi_all + (long long)row0 * width, count * width);
    copy_floats(bias, b_pi, width);
    copy_floats(context_weights, w_pi_ctx, HEAD_CONTEXT_DIM * width);
    const float gap = block_sum(threadIdx.x < GAP_BLOCKS ? gap_parts[threadIdx.x] : 0.0f, scratch) / ((float)rows * P);
    const float temperature = isv[ISV_Q_DISTILL_TEMPERATURE] * (all_classes ? floored_gap(gap) : 1.0f);

    const int r = threadIdx.x / P, c = threadIdx.x - r * P, row = row0 + r;
    float kl = 0.0f, agree = 0.0f;
    if (r < count) {
        const int own = head_block(position_class[row], P), at = r * width + c * N_ACTIONS;
        if (all_classes || c == own) {
            float soft[N_ACTIONS], log_soft[N_ACTIONS], x[N_ACTIONS];
            policy_logits(logits, bias, context_weights, context + (long long)row0 * HEAD_CONTEXT_DIM, r, c, P, x);
            softmax_and_log(x, soft, log_soft);
            const float scale = isv[ISV_Q_DISTILL_LAMBDA] / ((float)rows * (all_classes ? P : 1));
            kl = add_distillation(q + at, next_class + c * N_ACTIONS, by_position != 0, temperature, scale, soft, log_soft,
                                  grad + at);
            if (c == own) {
                add_reference(isv[ISV_KL_REF_HOLD], isv[ISV_KL_REF_BETA] / rows, soft, log_soft, grad + at);
                agree = best_action_of(q + at) == best_action_of(pi_soft + (long long)row * N_ACTIONS) ? 1.0f : 0.0f;
            }
        }
    }
    kl_of[threadIdx.x] = kl;
    __syncthreads();
    copy_floats(grad_pi_all + (long long)row0 * width, grad, count * width);
    float row_kl = 0.0f, bad = 0.0f;
    if ((int)threadIdx.x < count) {
        for (int i = 0; i < P; ++i) row_kl += kl_of[threadIdx.x * P + i];
        row_kl /= all_classes ? P : 1;
        bad = is_finite(row_kl) ? 0.0f : 1.0f;
    }
    // Warps side by side, then their sums one after another.
    __shared__ float warps[LESSON_SUMS][LESSON_THREADS / 32];
    const float own_sums[LESSON_SUMS] = {warp_sum(row_kl), warp_sum(bad), warp_sum(agree)};
    if (threadIdx.x % 32 == 0) {
        for (int i = 0; i < LESSON_SUMS; ++i) warps[i][threadIdx.x / 32] = own_sums[i];
    }
    __syncthreads();
    if (threadIdx.x >= LESSON_SUMS) return;
    float sum = 0.0f;
    for (int w = 0; w < LESSON_THREADS / 32; ++w) sum += warps[threadIdx.x][w];
    lesson_parts[(long long)blockIdx.x * LESSON_SUMS + threadIdx.x] = sum;
}

// rl_policy_lesson_reduce: the blocks' sums become the distillation loss, its signal and the agreement.
// launch: blocks 1, block 1024
// updates: isv, nonfinite_parts
// fuses: rl_distill_kl, rl_q_pi_agree_b
// One block, fixed order. lesson_parts [blocks, 3]; nonfinite_parts[part] = rows that are not finite (the EMA is then
// left alone). Slots written: LOSS_DISTILL, Q_DISTILL_KL_EMA, Q_PI_AGREE_EMA (the first observation replaces 0).
extern "C" __global__ void rl_policy_lesson_reduce(const float* lesson_parts, float* isv, int* nonfinite_parts,
                                                   int part, int rows, int blocks) {
    __shared__ float scratch[32];
    float sums[LESSON_SUMS] = {0.0f, 0.0f, 0.0f};
    for (int b = threadIdx.x; b < blocks; b += blockDim.x) {
        for (int i = 0; i < LESSON_SUMS; ++i) sums[i] += lesson_parts[(long long)b * LESSON_SUMS + i];
    }
    for (int i = 0; i < LESSON_SUMS; ++i) sums[i] = block_sum(sums[i], scratch);
    if (threadIdx.x != 0) return;
    const float kl = sums[0] / rows, agree = sums[2] / rows;
    nonfinite_parts[part] = (int)sums[1];
    isv[ISV_LOSS_DISTILL] = kl;
    if (sums[1] == 0.0f) isv[ISV_Q_DISTILL_KL_EMA] = signal_of(isv[ISV_Q_DISTILL_KL_EMA], kl);
    isv[ISV_Q_PI_AGREE_EMA] = signal_of(isv[ISV_Q_PI_AGREE_EMA], agree);
}
