// Direction head: 128 -> 3, will the mid be higher at each horizon.
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

// rl_direction_bce_grad: binary cross-entropy of the labelled horizons and the gradient of the logits.
// launch: threads rows, block 64
// updates: direction_logits
// One thread a row. direction_logits [rows, 3] holds h W, becomes h W + b; b_direction [3]; direction_target
// [rows, 3] 1 up, 0 down, -1 unknown or unchanged; label_scale [2] of rl_label_count; grad_direction_logits
// [rows, 3]; row_loss_direction [rows] mean over the row's labels; row_weight_direction [rows] labels.
//   -y ln s(x) - (1 - y) ln(1 - s(x)) = softplus(x) - y x;  gradient LOSS_LAMBDA_BCE (s(x) - y) / labels
// A horizon without label has gradient zero. Slots read: LOSS_LAMBDA_BCE.
extern "C" __global__ void rl_direction_bce_grad(const float* b_direction, const signed char* direction_target,
                                                 const float* label_scale, const float* isv, float* direction_logits,
                                                 float* grad_direction_logits, float* row_loss_direction,
                                                 float* row_weight_direction, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float scale = isv[ISV_LOSS_LAMBDA_BCE] * label_scale[1];
    float loss = 0.0f, labels = 0.0f;
    for (int h = 0; h < N_HORIZONS; ++h) {
        const int i = row * N_HORIZONS + h;
        const float x = direction_logits[i] + b_direction[h];
        direction_logits[i] = x;
        const int label = direction_target[i];
        float grad = 0.0f;
        if (label >= 0) {
            const float y = label > 0 ? 1.0f : 0.0f;
            loss += softplus(x) - y * x;
            labels += 1.0f;
            grad = scale * (sigmoid(x) - y);
        }
        grad_direction_logits[i] = grad;
    }
    row_loss_direction[row] = labels > 0.0f ? loss / labels : 0.0f;
    row_weight_direction[row] = labels;
}
