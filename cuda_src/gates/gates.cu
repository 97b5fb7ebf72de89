// The two entry gates: an opening the critic or the forecast does not back becomes Hold. One thread a row.
//
// They act on a flat row (position_lots 0) whose action opens (short or long, small or large) and on nothing else:
// exits are never blocked. They come first among the overrides, so everything below may still act. A row ignores both
// gates before GATE_WARMUP_STEPS (an untrained critic would hold for ever and nothing would be learned) and in a step
// in which it draws below GATE_BYPASS (gated actions stay explored).
// A slice t of every [T, B] array is read and written at t*B + b.
#include "gates/gates.cuh"

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
    gate_open[b] = gate_open_row(isv, t, evaluation != 0, rng_gate + b);
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
    if (!gate_judges(gate_open[b] != 0, position_lots[b], action[at])) return;
    const int pair = b * N_ACTIONS + action[at];
    confidence_gate_row(q_mean[pair], q_sigma[pair], isv, action + at, override_reason + at);
}

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
    if (!gate_judges(gate_open[b] != 0, position_lots[b], action[at])) return;
    frd_gate_row(frd_prob + at * N_HORIZONS * N_BUCKETS, isv, action + at, override_reason + at);
}
