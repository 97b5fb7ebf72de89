// The supervised heads in three kernels: labels and packed weights, rows, sums (nets/frd.cu, direction.cu, outcome.cu).
#include "fused/heads_update.cuh"

#define LABEL_UNKNOWN (-1)
#define HEADS_ELEMENTS 256  // elements of a block of the sums
#define HEADS_GROUPS 4      // shares of the blocks' sums that are added side by side
#define HEADS_ROWS_FP32 32  // rows of a tile

static_assert(sizeof(float) == 8 || (sizeof(Heads<Fp32Math, HEADS_ROWS_FP32, 96, false>::Tile) <= 40576 &&
                                     sizeof(Heads<Fp32Math, HEADS_ROWS_FP32, 128, false>::Tile) <= 44672),
              "the launch rule of rl_heads_update asks for less shared memory than a tile takes");

// The heads' parameters (Element = const float) or gradients.
template <class Element>
struct HeadTensors {
    Element *w_frd1, *b_frd1, *w_frd2, *b_frd2, *w_direction, *b_direction, *w_outcome, *b_outcome;

    // Column c of the first layer at input k, or its bias; null where the column is a pad.
    __device__ Element* first(int k, int c, bool bias, int P) const {
        const int outcome = c - HEADS_OUTCOME;
        if (c < HEADS_UNITS) return bias ? b_frd1 + c : w_frd1 + k * HEADS_UNITS + c;
        if (outcome < 0) return bias ? b_direction + c - HEADS_UNITS : w_direction + k * N_HORIZONS + c - HEADS_UNITS;
        if (outcome >= P * N_OUTCOMES) return nullptr;
        return bias ? b_outcome + outcome : w_outcome + k * P * N_OUTCOMES + outcome;
    }

    __device__ Element* second(int unit, int c, bool bias) const {
        if (c >= N_HORIZONS * N_BUCKETS) return nullptr;
        return bias ? b_frd2 + c : w_frd2 + unit * N_HORIZONS * N_BUCKETS + c;
    }

    // Element i of first layer [128][width], second layer [64][64], their biases [width], [64], one after another.
    // *packed: where it lies among the packed weights, whose rows are eight longer.
    __device__ Element* locate(int i, int width, int P, int* packed) const {
        const int stride = width + 8, first_size = HIDDEN_DIM * stride;
        if (i < HIDDEN_DIM * width) {
            *packed = i / width * stride + i % width;
            return first(i / width, i % width, false, P);
        }
        i -= HIDDEN_DIM * width;
        if (i < HEADS_UNITS * HEADS_FRD) {
            *packed = first_size + i / HEADS_FRD * HEADS_FRD_STRIDE + i % HEADS_FRD;
            return second(i / HEADS_FRD, i % HEADS_FRD, false);
        }
        i -= HEADS_UNITS * HEADS_FRD;
        *packed = first_size + HEADS_UNITS * HEADS_FRD_STRIDE + i;
        return i < width ? first(0, i, true, P) : second(0, i - width, true);
    }
};

// rl_heads_prepare: labels of the iteration's rows, how many there are, and the heads' weights side by side.
// launch: blocks 64, block 256
// fuses: gpu_gather_frd_labels, rl_label_count, rl_outcome_labels
// Rows and weights in steps of the grid. frd_label, direction_label [N_SNAP, 3]; cursor [B]; closed,
// closed_trade_pnl_usd, closed_trade_lots [T*B]; frd_target, direction_target [T*B, 3] labels of snapshot cursor[b] + t,
// none outside the data; outcome_target [T*B]; label_counts [64, 3] of the block's rows: FRD, direction, outcome;
// heads_weights: heads_tile.cuh. Labels as gpu_gather_frd_labels and rl_outcome_labels give them.
extern "C" __global__ void rl_heads_prepare(
    const signed char* frd_label, const signed char* direction_label, const int* cursor, const unsigned char* closed,
    const float* closed_trade_pnl_usd, const int* closed_trade_lots, const float* w_frd1, const float* b_frd1,
    const float* w_frd2, const float* b_frd2, const float* w_direction, const float* b_direction,
    const float* w_outcome, const float* b_outcome, signed char* frd_target, signed char* direction_target,
    signed char* outcome_target, int* label_counts, float* heads_weights, int T, int B, int P, int N_SNAP,
    float tick_value_usd) {
    __shared__ int scratch[32];
    const HeadTensors<const float> tensors = {w_frd1,      b_frd1,      w_frd2,    b_frd2,
                                              w_direction, b_direction, w_outcome, b_outcome};
    const int width = HEADS_WIDTH(P), elements = HEADS_PART_SIZE(width) - HEADS_SUMS;
    const int start = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    for (int i = start; i < elements; i += stride) {
        int packed;
        const float* from = tensors.locate(i, width, P, &packed);
        heads_weights[packed] = from ? *from : 0.0f;
    }
    int counts[3] = {0, 0, 0};
    for (int row = start; row < T * B; row += stride) {
        const int t = row / B;
        const long long snapshot = (long long)cursor[row - t * B] + t;
        const bool inside = snapshot >= 0 && snapshot < N_SNAP;
        for (int i = 0; i < N_HORIZONS; ++i) {
            const long long from = snapshot * N_HORIZONS + i, to = (long long)row * N_HORIZONS + i;
            const int frd = inside ? frd_label[from] : LABEL_UNKNOWN;
            const int direction = inside ? direction_label[from] : LABEL_UNKNOWN;
            frd_target[to] = (signed char)frd;
            direction_target[to] = (signed char)direction;
            counts[0] += frd >= 0;
            counts[1] += direction >= 0;
        }
        const int kind = outcome_label(closed[row], closed_trade_pnl_usd[row], closed_trade_lots[row], tick_value_usd);
        outcome_target[row] = (signed char)kind;
        counts[2] += kind >= 0;
    }
    for (int head = 0; head < 3; ++head) {
        const int sum = block_sum_int(counts[head], scratch);
        if (threadIdx.x == 0) label_counts[blockIdx.x * 3 + head] = sum;
    }
}

// rl_heads_update: forward, losses and gradients of the three heads, float32 throughout.
// launch: blocks (rows+31)/32 if rows < 4096 else 128, block 512, shared 40576 + 4096*(P/10)
// updates: grad_h
// fuses: rl_frd_fwd, rl_frd_softmax, rl_frd_softmax_ce_grad, rl_frd_layer2_bwd, rl_frd_layer1_bwd
// fuses: rl_direction_bce_grad, rl_outcome_ce_grad, rl_outcome_scale_grad
// Tiles and order: heads_update.cuh; memory and sums: heads_tile.cuh. h, grad_h [rows, 128]; heads_weights, frd_target,
// direction_target [rows, 3], outcome_target [rows], label_counts of rl_heads_prepare; position_class [rows];
// heads_parts: sums of each block; first: grad_h is overwritten, else added to. Slots read: LOSS_LAMBDA_AUX,
// LOSS_LAMBDA_BCE, FRD_LAMBDA, OUTCOME_LAMBDA.
extern "C" __global__ void __launch_bounds__(HEADS_THREADS, 1) rl_heads_update(
    const float* h, const float* heads_weights, const signed char* frd_target, const signed char* direction_target,
    const signed char* outcome_target, const int* position_class, const int* label_counts, const float* isv,
    float* grad_h, float* heads_parts, int rows, int P, int first) {
    extern __shared__ __align__(16) float shared[];
    const HeadsUpdate update = {h, heads_weights, frd_target, direction_target, outcome_target, position_class,
                                label_counts, isv, grad_h, heads_parts, rows, P, first};
    run_heads<Fp32Math, HEADS_ROWS_FP32, false>(shared, update);
}

// The mean of a head's losses into its slot, as rl_mean_into_slot: without a label the slot is left alone.
static __device__ inline void publish_loss(const float* sums, float labels, float* slot, int* nonfinite) {
    if (labels > 0.0f) *slot = sums[0] / labels;
    *nonfinite = (int)sums[1];
}

// rl_heads_reduce: the blocks' sums become gradients, losses and the accuracy of the outcome head.
// launch: blocks 1 + (129*(96 if P <= 9 else 128) + 65*64 + 255)/256, block 1024
// updates: isv, nonfinite_parts
// fuses: rl_mean_into_slot, rl_outcome_accuracy
// Block 0: losses. The others: 256 elements of the gradients each; four groups of threads add a run of blocks,
// ascending, then the four sums in order. heads_parts [blocks, ...]; label_counts [64, 3]; nonfinite_parts[part_frd,
// part_direction, part_outcome] = rows whose loss is not finite. Slots written: LOSS_FRD, LOSS_BCE, LOSS_OUTCOME,
// OUTCOME_ACC (the first observation replaces 0; without a close none is).
extern "C" __global__ void __launch_bounds__(HEADS_GROUPS * HEADS_ELEMENTS) rl_heads_reduce(
    const float* heads_parts, const int* label_counts, float* isv, int* nonfinite_parts, float* grad_w_frd1,
    float* grad_b_frd1, float* grad_w_frd2, float* grad_b_frd2, float* grad_w_direction, float* grad_b_direction,
    float* grad_w_outcome, float* grad_b_outcome, int part_frd, int part_direction, int part_outcome, int blocks,
    int P) {
    __shared__ float sums[HEADS_GROUPS][HEADS_ELEMENTS];
    const int width = HEADS_WIDTH(P), size = HEADS_PART_SIZE(width), elements = size - HEADS_SUMS, tid = threadIdx.x;
    if (blockIdx.x == 0) {
        // A warp a number: labels of three heads, then what the blocks summed.
        float* total = sums[0];
        const int warp = tid / 32;
        if (warp < 3 + HEADS_SUMS) {
            float sum = 0.0f;
#pragma unroll 4
            for (int i = tid % 32; i < (warp < 3 ? LABEL_BLOCKS : blocks); i += 32) {
                const float* of_block = heads_parts + (long long)i * size + elements;
                sum += warp < 3 ? (float)label_counts[i * 3 + warp] : of_block[warp - 3];
            }
            sum = warp_sum(sum);
            if (tid % 32 == 0) total[warp] = sum;
        }
        __syncthreads();
        if (tid != 0) return;
        const float* of = total + 3;
        publish_loss(of + SUM_FRD, total[0], isv + ISV_LOSS_FRD, nonfinite_parts + part_frd);
        publish_loss(of + SUM_DIRECTION, total[1], isv + ISV_LOSS_BCE, nonfinite_parts + part_direction);
        publish_loss(of + SUM_OUTCOME, total[2], isv + ISV_LOSS_OUTCOME, nonfinite_parts + part_outcome);
        if (total[2] > 0.0f) {
            const float old = isv[ISV_OUTCOME_ACC], right = of[SUM_HITS] / total[2];
            isv[ISV_OUTCOME_ACC] = old == 0.0f ? right : ema(old, right, OUTCOME_ACC_RATE);
        }
        return;
    }
    const int group = tid / HEADS_ELEMENTS, lane = tid % HEADS_ELEMENTS, i = (blockIdx.x - 1) * HEADS_ELEMENTS + lane;
    const int each = (blocks + HEADS_GROUPS - 1) / HEADS_GROUPS;
    const int last = (group + 1) * each < blocks ? (group + 1) * each : blocks;
    float sum = 0.0f;
    if (i < elements) {
#pragma unroll 16
        for (int b = group * each; b < last; ++b) sum += heads_parts[(long long)b * size + i];
    }
    sums[group][lane] = sum;
    __syncthreads();
    if (group != 0 || i >= elements) return;
    for (int g = 1; g < HEADS_GROUPS; ++g) sum += sums[g][lane];
    const HeadTensors<float> gradients = {grad_w_frd1, grad_b_frd1, grad_w_frd2, grad_b_frd2,
                                          grad_w_direction, grad_b_direction, grad_w_outcome, grad_b_outcome};
    int packed;
    float* to = gradients.locate(i, width, P, &packed);
    if (to) *to = sum;
}
