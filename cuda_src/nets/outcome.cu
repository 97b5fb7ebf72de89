// Outcome head: 128 -> P classes x (loss, scratch, win), learned on the steps that close a trade.
#include "generated/isv_slots.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/outcome.cuh"

// rl_outcome_labels: what became of the trade that closed at this step.
// launch: threads rows, block 64
// One thread a row. closed, closed_trade_pnl_usd, closed_trade_lots [rows]; outcome_target [rows], -1 = no close; the
// rule: outcome_label.
extern "C" __global__ void rl_outcome_labels(const unsigned char* closed, const float* closed_trade_pnl_usd,
                                             const int* closed_trade_lots, signed char* outcome_target, int rows,
                                             float tick_value_usd) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int lots = closed_trade_lots[row];
    outcome_target[row] = (signed char)outcome_label(closed[row], closed_trade_pnl_usd[row], lots, tick_value_usd);
}

// rl_outcome_ce_grad: cross-entropy at the class held before the close, and the gradient of every class's logits.
// launch: threads rows, block 64
// updates: outcome_logits
// One thread a row, which owns its row of outcome_logits and grad_outcome_logits [rows, P*3]. outcome_logits holds
// h W; the class's block becomes h W + b; b_outcome [P*3]; position_class [rows] before the step; outcome_target
// [rows]; label_scale [2] of rl_label_count; row_loss_outcome [rows]; row_weight_outcome [rows] 1 where labelled;
// outcome_hit [rows] 1 where the most probable outcome is the label. Gradient LOSS_LAMBDA_AUX (p - onehot) / labels.
// P = 1 (context in the encoder): every row uses the one block. Slots read: LOSS_LAMBDA_AUX.
extern "C" __global__ void rl_outcome_ce_grad(const float* b_outcome, const int* position_class,
                                              const signed char* outcome_target, const float* label_scale,
                                              const float* isv, float* outcome_logits, float* grad_outcome_logits,
                                              float* row_loss_outcome, float* row_weight_outcome, float* outcome_hit,
                                              int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const long long start = (long long)row * P * N_OUTCOMES;
    const int block = (P == 1 ? 0 : position_class[row]) * N_OUTCOMES;
    const int label = outcome_target[row];
    float* logits = outcome_logits + start + block;
    float* grad = grad_outcome_logits + start;
    for (int i = 0; i < P * N_OUTCOMES; ++i) grad[i] = 0.0f;
    int best = 0;
    float sum = 0.0f;
    for (int k = 0; k < N_OUTCOMES; ++k) {
        logits[k] += b_outcome[block + k];
        best = logits[k] > logits[best] ? k : best;
    }
    const float top = logits[best];
    for (int k = 0; k < N_OUTCOMES; ++k) sum += expf(logits[k] - top);
    const float scale = isv[ISV_LOSS_LAMBDA_AUX] * label_scale[1];
    if (label >= 0) {
        for (int k = 0; k < N_OUTCOMES; ++k) {
            grad[block + k] = scale * (expf(logits[k] - top) / sum - (k == label ? 1.0f : 0.0f));
        }
    }
    row_loss_outcome[row] = label >= 0 ? logf(sum) - (logits[label] - top) : 0.0f;
    row_weight_outcome[row] = label >= 0 ? 1.0f : 0.0f;
    outcome_hit[row] = label >= 0 && label == best ? 1.0f : 0.0f;
}

// rl_outcome_scale_grad: what of the gradient goes on to the encoder, in place: x OUTCOME_LAMBDA.
// launch: threads n, block 128
// updates: grad_outcome_logits
// One thread an element; runs after the head's own gradients are taken. Slots read: OUTCOME_LAMBDA.
extern "C" __global__ void rl_outcome_scale_grad(const float* isv, float* grad_outcome_logits, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) grad_outcome_logits[i] *= isv[ISV_OUTCOME_LAMBDA];
}

// rl_outcome_accuracy: share of closed trades whose outcome the head had right, sparse EMA.
// launch: blocks 1, block 32 if rows <= 1024 else 128
// updates: isv
// One block, fixed order. outcome_hit, row_weight_outcome [rows]. No close: no update.
// Slots written: OUTCOME_ACC (the first observation replaces the sentinel 0).
extern "C" __global__ void rl_outcome_accuracy(const float* outcome_hit, const float* row_weight_outcome, float* isv,
                                               int rows) {
    __shared__ float scratch[32];
    float hits = 0.0f, labels = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        hits += outcome_hit[r];
        labels += row_weight_outcome[r];
    }
    hits = block_sum(hits, scratch);
    labels = block_sum(labels, scratch);
    if (threadIdx.x == 0 && labels > 0.0f) {
        const float old = isv[ISV_OUTCOME_ACC];
        isv[ISV_OUTCOME_ACC] = old == 0.0f ? hits / labels : ema(old, hits / labels, OUTCOME_ACC_RATE);
    }
}
