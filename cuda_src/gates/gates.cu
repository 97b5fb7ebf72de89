// The two entry gates: an opening the critic or the forecast does not back becomes Hold. One thread a row.
//
// They act on a flat row (position_lots 0) whose action opens (short or long, small or large) and on nothing else:
// exits are never blocked. They come first among the overrides, so everything below may still act. A row ignores both
// gates before GATE_WARMUP_STEPS (an untrained critic would hold for ever and nothing would be learned) and in a step
// in which it draws below GATE_BYPASS (gated actions stay explored).
// A slice t of every [T, B] array is read and written at t*B + b.
#include "env/reasons.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/rng.cuh"

static __device__ inline bool is_long_opening(int action) {
    return action == ACTION_LONG_SMALL || action == ACTION_LONG_LARGE;
}

static __device__ inline bool is_short_opening(int action) {
    return action == ACTION_SHORT_SMALL || action == ACTION_SHORT_LARGE;
}

// rl_gate_open: which rows ignore both gates in step t.
// gate_open [B] 0/1; rng_gate [B]: one draw a row and step, whatever the slots say, so that a change of GATE_BYPASS
// leaves the stream alone. evaluation 1: neither warm-up nor bypass, no draw.
// Slots read: TRAIN_STEP (of the iteration's begin), GATE_WARMUP_STEPS, GATE_BYPASS.
// launch: threads B, block 64
// updates: rng_gate
extern "C" __global__ void rl_gate_open(const float* isv, unsigned int* rng_gate, unsigned char* gate_open,
                                        int evaluation, int t, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    if (evaluation) {
        gate_open[b] = 0;
        return;
    }
    const bool warm_up = isv[ISV_TRAIN_STEP] + (float)t < isv[ISV_GATE_WARMUP_STEPS];
    const bool bypass = uniform01(&rng_gate[b]) < isv[ISV_GATE_BYPASS];
    gate_open[b] = warm_up || bypass ? 1 : 0;
}

// rl_confidence_gate: Hold unless the lower confidence bound of the action's value reaches the threshold.
// (mu - lambda sigma) / sigma_norm < threshold -> Hold, with mu and sigma of the action's C51 distribution at the row's
// class: q_mean, q_sigma [B, 11] of step t (rl_c51_row_q). A bound that is not a number holds: no entry on a broken
// critic.
// Slots read: CONF_GATE_THRESHOLD, CONF_GATE_LAMBDA, CONF_GATE_SIGMA_NORM.
// launch: threads B, block 64
// updates: action, override_reason
extern "C" __global__ void rl_confidence_gate(const float* q_mean, const float* q_sigma, const int* position_lots,
                                              const unsigned char* gate_open, const float* isv, signed char* action,
                                              unsigned char* override_reason, int t, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const long long at = (long long)t * B + b;
    const int chosen = action[at];
    if (gate_open[b] || position_lots[b] != 0 || !(is_long_opening(chosen) || is_short_opening(chosen))) return;
    const int pair = b * N_ACTIONS + chosen;
    const float bound = (q_mean[pair] - isv[ISV_CONF_GATE_LAMBDA] * q_sigma[pair]) / isv[ISV_CONF_GATE_SIGMA_NORM];
    if (bound >= isv[ISV_CONF_GATE_THRESHOLD]) return;
    action[at] = ACTION_HOLD;
    override_reason[at] |= REASON_CONFIDENCE;
}

#define MEDIUM_HORIZON 1
#define TAIL_SIGMA 0.5f  // favourable: a forward return beyond this

// rl_frd_gate: Hold unless the forward-return forecast leans the way of the entry.
// A long needs the mass of bucket centres > +0.5 sigma to reach FRD_GATE_THR_LONG, a short that of centres < -0.5 sigma
// FRD_GATE_THR_SHORT; centres linspace(-span, span, 21), span = FRD_SIGMA_SPAN; medium horizon. frd_prob
// [T, B, 3, 21]. A mass that is not a number holds. Runs after rl_confidence_gate.
// Slots read: FRD_SIGMA_SPAN, FRD_GATE_THR_LONG, FRD_GATE_THR_SHORT.
// launch: threads B, block 64
// updates: action, override_reason
extern "C" __global__ void rl_frd_gate(const float* frd_prob, const int* position_lots, const unsigned char* gate_open,
                                       const float* isv, signed char* action, unsigned char* override_reason, int t,
                                       int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const long long at = (long long)t * B + b;
    const bool is_long = is_long_opening(action[at]), is_short = is_short_opening(action[at]);
    if (gate_open[b] || position_lots[b] != 0 || !(is_long || is_short)) return;
    const float* prob = frd_prob + (at * N_HORIZONS + MEDIUM_HORIZON) * N_BUCKETS;
    const float span = isv[ISV_FRD_SIGMA_SPAN], side = is_long ? 1.0f : -1.0f;
    float mass = 0.0f;
    for (int k = 0; k < N_BUCKETS; ++k) {
        const float centre = span * (2.0f * (float)k / (float)(N_BUCKETS - 1) - 1.0f);
        if (side * centre > TAIL_SIGMA) mass += prob[k];
    }
    if (mass >= isv[is_long ? ISV_FRD_GATE_THR_LONG : ISV_FRD_GATE_THR_SHORT]) return;
    action[at] = ACTION_HOLD;
    override_reason[at] |= REASON_FRD;
}
