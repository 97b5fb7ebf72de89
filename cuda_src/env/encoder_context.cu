// The position in the encoder's input, for encoders that see it (context = encoder, T = 1): every step of such a run
// encodes two windows of K snapshots, that of the state before the step and that of the state behind it.
#include "env/book.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

#define AGE_SCALE 256.0f      // steps: time in trade is divided by this
#define R_LIMIT 10.0f         // R: a unit opened on a quiet market has a tiny initial R
#define RISK_FLOOR 1e-6f      // ticks: floor under a division by initial R or sigma
#define FEATURE_LIMIT 16.0f   // |feature| at most, as in features.cu

static_assert(CONTEXT_DIM == 4, "four features of the open trade");

// rl_encoder_context_broadcast: what a row holds, into all K snapshots of its window.
// launch: threads K*B, block 64
// updates: x
//
// Columns of x:
//   40  time in trade / 256, of the oldest unit         41  its unrealised R = side (mid - entry) / initial R, in +-10
//   42  signed lots / lot limit                         43  (mid - its entry) / FRD_SIGMA_MEDIUM, in +-16
//   44..55  the row's multi-resolution features
// 40..43 are 0 for a flat row. mid: of snapshot cursor + offset, the window's last (offset 0: before the step, 1: behind
// it; the units must be those of that moment). Thread (w, b), b fastest, writes the 16 columns of one snapshot.
// in:  cursor [B]; bid_px, ask_px [N_SNAP, N_LEVELS]; position_lots [B]; unit_entry (ticks), unit_initial_r (ticks),
//      unit_age (steps) [B, MAX_UNITS], the oldest first; multires_row [B, MULTIRES_DIM]
// io:  x [K, B, ENCODER_INPUT_DIM], columns 40..55
// reads slot FRD_SIGMA_MEDIUM (ticks). edge: NaN passes.
extern "C" __global__ void rl_encoder_context_broadcast(
    const int* cursor, const float* bid_px, const float* ask_px, const int* position_lots, const float* unit_entry,
    const float* unit_initial_r, const int* unit_age, const float* multires_row, const float* isv, float* x,
    int lot_limit, int offset, int K, int B) {
    const int item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= K * B) return;
    const int b = item % B, lots = position_lots[b];
    float* out = x + (long long)item * ENCODER_INPUT_DIM + FEATURE_DIM;
    for (int j = 0; j < CONTEXT_DIM; ++j) out[j] = 0.0f;
    if (lots != 0) {
        const int oldest = b * MAX_UNITS;
        const float away = book_mid(bid_px, ask_px, (long long)cursor[b] + offset) - unit_entry[oldest];
        const float risk = fmaxf(unit_initial_r[oldest], RISK_FLOOR), sigma = fmaxf(isv[ISV_FRD_SIGMA_MEDIUM], RISK_FLOOR);
        out[0] = (float)unit_age[oldest] / AGE_SCALE;
        out[1] = clampf((lots > 0 ? away : -away) / risk, -R_LIMIT, R_LIMIT);
        out[2] = (float)lots / (float)lot_limit;
        out[3] = clampf(away / sigma, -FEATURE_LIMIT, FEATURE_LIMIT);
    }
    for (int j = 0; j < MULTIRES_DIM; ++j) {
        out[CONTEXT_DIM + j] = clampf(multires_row[b * MULTIRES_DIM + j], -FEATURE_LIMIT, FEATURE_LIMIT);
    }
}

// rl_encoder_next_state: the encoding of the window behind the step becomes state T of the iteration.
// launch: threads B*HIDDEN_DIM, block 128
// updates: h
// One thread an element. next_h [B, 128]; h [T+1, B, 128], slice T is written.
extern "C" __global__ void rl_encoder_next_state(const float* next_h, float* h, int T, int B) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < B * HIDDEN_DIM) h[(long long)T * B * HIDDEN_DIM + i] = next_h[i];
}
