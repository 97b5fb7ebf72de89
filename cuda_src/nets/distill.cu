// What the critic teaches the actor: distillation, the reference policy, and how far the two agree.
//
// All gradients are with respect to pi_all's logits and are added to what the surrogate left in grad_pi_all.
#include "nets/distill.cuh"

// rl_action_gap_rows: mean over classes of (max - mean) of E[Q] over the actions.
// launch: threads rows, block 64
// One thread a row. ensemble_q [rows, P*11]; row_action_gap [rows].
extern "C" __global__ void rl_action_gap_rows(const float* ensemble_q, float* row_action_gap, int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float gap = 0.0f;
    for (int c = 0; c < P; ++c) gap += action_gap_of(ensemble_q + ((long long)row * P + c) * N_ACTIONS);
    row_action_gap[row] = gap / P;
}

// rl_action_gap: the batch mean of the gap, the scale of the distillation temperature.
// launch: blocks 1, block 32 if rows <= 1024 else 128
// One block, fixed order. row_action_gap [rows]; action_gap [1], at least ACTION_GAP_FLOOR.
extern "C" __global__ void rl_action_gap(const float* row_action_gap, float* action_gap, int rows) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) sum += row_action_gap[r];
    sum = block_sum(sum, scratch) / rows;
    if (threadIdx.x == 0) action_gap[0] = floored_gap(sum);
}

// rl_q_pi_distill_grad: pulls the policy towards softmax(E_Q / temperature).
// launch: threads rows, block 64
// updates: grad_pi_all
// One thread a row, which owns its row of grad_pi_all [rows, P*11]. pi_all, b_pi, w_pi_ctx, context, position_class as
// in rl_pi_action_kernel; ensemble_q [rows, P*11]; action_gap [1]; row_distill [rows] KL(target || pi), nats.
//   target = softmax((E_Q - max E_Q) / tau'), gradient of KL(target || softmax(logits)) = lambda (pi - target)
// all_classes = 0: the row's own class, tau' = tau, mean over rows. all_classes = 1: every class with the row's own
// context, tau' = tau x action_gap, mean over rows and classes. by_position = 1: the target of actions that lead to the
// same position (next_class [P, 11]) is one sum, split between them as pi splits it. Slots read: Q_DISTILL_LAMBDA, Q_DISTILL_TEMPERATURE.
extern "C" __global__ void rl_q_pi_distill_grad(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                                const float* context, const int* position_class,
                                                const float* ensemble_q, const signed char* next_class,
                                                const float* action_gap, const float* isv, float* grad_pi_all,
                                                float* row_distill, int rows, int P, int all_classes,
                                                int by_position) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float temperature = isv[ISV_Q_DISTILL_TEMPERATURE] * (all_classes ? action_gap[0] : 1.0f);
    const int first = all_classes ? 0 : head_block(position_class[row], P), classes = all_classes ? P : 1;
    const float scale = isv[ISV_Q_DISTILL_LAMBDA] / ((float)rows * classes);
    float kl = 0.0f;
    for (int c = first; c < first + classes; ++c) {
        const long long start = ((long long)row * P + c) * N_ACTIONS;
        float logits[N_ACTIONS], soft[N_ACTIONS], log_soft[N_ACTIONS];
        policy_logits(pi_all, b_pi, w_pi_ctx, context, row, c, P, logits);
        softmax_and_log(logits, soft, log_soft);
        kl += add_distillation(ensemble_q + start, next_class + c * N_ACTIONS, by_position != 0, temperature, scale, soft,
                               log_soft, grad_pi_all + start);
    }
    row_distill[row] = kl / classes;
}

// rl_distill_kl: mean KL(target || pi) of the batch: the loss and the signal of the lambda controller.
// launch: blocks 1, block 32 if rows <= 1024 else 128
// updates: isv, nonfinite_parts
// One block, fixed order. row_distill [rows]; nonfinite_parts[part] = rows that are not finite (the EMA is then left
// alone, the loss shows NaN). Slots written: LOSS_DISTILL, Q_DISTILL_KL_EMA (the first observation replaces 0).
extern "C" __global__ void rl_distill_kl(const float* row_distill, float* isv, int* nonfinite_parts, int part,
                                         int rows) {
    __shared__ float scratch[32];
    float sum = 0.0f, bad = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        sum += row_distill[r];
        if (!is_finite(row_distill[r])) bad += 1.0f;
    }
    sum = block_sum(sum, scratch) / rows;
    bad = block_sum(bad, scratch);
    if (threadIdx.x != 0) return;
    nonfinite_parts[part] = (int)bad;
    isv[ISV_LOSS_DISTILL] = sum;
    if (bad == 0.0f) isv[ISV_Q_DISTILL_KL_EMA] = signal_of(isv[ISV_Q_DISTILL_KL_EMA], sum);
}

// rl_kl_reference_grad: pulls the policy of each row's class towards the reference policy.
// launch: threads rows, block 64
// updates: grad_pi_all
// One thread a row. Inputs as above; row_kl_reference [rows] = KL(reference || pi), nats. Reference: Hold KL_REF_HOLD,
// the other ten share the rest. Gradient KL_REF_BETA (pi - reference) / rows. Slots read: KL_REF_BETA, KL_REF_HOLD.
extern "C" __global__ void rl_kl_reference_grad(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                                const float* context, const int* position_class, const float* isv,
                                                float* grad_pi_all, float* row_kl_reference, int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int c = head_block(position_class[row], P);
    float logits[N_ACTIONS], soft[N_ACTIONS], log_soft[N_ACTIONS];
    policy_logits(pi_all, b_pi, w_pi_ctx, context, row, c, P, logits);
    softmax_and_log(logits, soft, log_soft);
    float* grad = grad_pi_all + ((long long)row * P + c) * N_ACTIONS;
    row_kl_reference[row] = add_reference(isv[ISV_KL_REF_HOLD], isv[ISV_KL_REF_BETA] / rows, soft, log_soft, grad);
}

// rl_q_pi_agree_b: share of rows whose most valued action is the policy's most probable one.
// launch: blocks 1, block 32 if rows <= 1024 else 128
// updates: isv
// One block, fixed order. ensemble_q [rows, P*11] and pi_soft [rows, 11] at the row's class; first of equals on either
// side. Slots written: Q_PI_AGREE_EMA (the first observation replaces 0).
extern "C" __global__ void rl_q_pi_agree_b(const float* ensemble_q, const float* pi_soft, const int* position_class,
                                           float* isv, int rows, int P) {
    __shared__ float scratch[32];
    float agree = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        const float* q = ensemble_q + ((long long)r * P + head_block(position_class[r], P)) * N_ACTIONS;
        const float* p = pi_soft + (long long)r * N_ACTIONS;
        agree += best_action_of(q) == best_action_of(p) ? 1.0f : 0.0f;
    }
    agree = block_sum(agree, scratch) / rows;
    if (threadIdx.x == 0) isv[ISV_Q_PI_AGREE_EMA] = signal_of(isv[ISV_Q_PI_AGREE_EMA], agree);
}
