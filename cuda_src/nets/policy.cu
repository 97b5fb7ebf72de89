// The policy and value heads at the rows' own position classes.
#include "generated/isv_slots.cuh"
#include "nets/policy.cuh"

// rl_pi_action_kernel: draw the action of environment step t, or take the most probable one.
// launch: threads B, block 64
// updates: rng_action
// One thread a row. pi_all [T+1, B, P*11] logits of all classes without bias; b_pi [P*11]; w_pi_ctx [3, P*11];
// context [T+1, B, 3]; position_class [T+1, B]; rng_action [B]; action_drawn [T, B]; log_prob [T, B] nats.
// p = P_MIN + (1 - 11 P_MIN) softmax; the draw walks the cumulative sum with one uniform number and ends on the last
// action whatever rounding leaves over. greedy != 0: argmax p (first of equals), no random number is used.
// A row whose logits are not finite draws Hold; its log_prob is NaN and the losses count it.
// Slots read: P_MIN.
extern "C" __global__ void rl_pi_action_kernel(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                               const float* context, const int* position_class, const float* isv,
                                               unsigned int* rng_action, signed char* action_drawn, float* log_prob,
                                               int B, int P, int t, int greedy) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const long long row = (long long)t * B + b;
    float logits[N_ACTIONS];
    policy_logits(pi_all, b_pi, w_pi_ctx, context, row, head_block(position_class[row], P), P, logits);
    const PolicyDraw draw = pi_action_row(logits, isv[ISV_P_MIN], rng_action + b, greedy != 0);
    action_drawn[row] = (signed char)draw.action;
    log_prob[row] = draw.log_prob;
}

// rl_value_rows: V of each row's own class, in units of the scaled reward.
// launch: threads rows, block 64
// One thread a row. v_all [rows, P] without bias; b_v [P]; w_v_ctx [3, P]; context [rows, 3]; position_class [rows];
// value [rows]. The head predicts the PopArt-normalised return: value = mean + sigma raw (van Hasselt 2016).
// Slots read: POPART_MEAN, POPART_SECOND_MOMENT.
extern "C" __global__ void rl_value_rows(const float* v_all, const float* b_v, const float* w_v_ctx,
                                         const float* context, const int* position_class, const float* isv,
                                         float* value, int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) value[row] = value_rows_row(v_all, b_v, w_v_ctx, context, position_class, isv, P, row);
}

// rl_q_action_kernel: the action of greatest ensemble value at the row's class.
// launch: threads B, block 64
// One thread a row. ensemble_q [T, B, P, 11] scaled; position_class [T+1, B]; next_class [P, 11]; action_drawn [T, B].
// The first of equals wins, but Hold before all others, so that a critic without an opinion does nothing. NaN values
// never win. by_position 1: actions that lead to the same position have one value, their mean, so that the trails of
// stops, of which path targets know nothing, are left alone.
extern "C" __global__ void rl_q_action_kernel(const float* ensemble_q, const int* position_class,
                                              const signed char* next_class, signed char* action_drawn, int B, int P,
                                              int t, int by_position) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const long long row = (long long)t * B + b;
    const int block = head_block(position_class[row], P);
    const float* q = ensemble_q + (row * P + block) * N_ACTIONS;
    action_drawn[row] = (signed char)q_action_row(q, next_class + block * N_ACTIONS, by_position != 0);
}
