// The small gradients of the encoder: sums over rows (Mamba-2 blocks) and over tiles of tokens (variable selection).
//
// mamba2_row_backward_* and vsn_tile_backward leave one line of parts a row or tile; this kernel adds the lines. It does
// what the products of ones with the parts do in the unfused list (labels "m1 grad b_dt" and the like).
// Thread mapping: a block owns 16 adjacent columns, 64 threads each. Shared memory: 4.5 kB, static.
// Order of addition: fixed by the number of lines alone. Thread k of a column takes lines k, k + 64, ..., ascending;
// then eight threads add eight of these sums each, ascending, and one adds the eight.
// Edge cases: NaN and infinity show in the sums.
#include "fused/mamba2_pipeline.cuh"

#define SUM_COLUMNS 16
#define SUM_LANES 64
#define SUM_BLOCKS ((ROW_PARTS + SUM_COLUMNS - 1) / SUM_COLUMNS)  // blocks of threads of one Mamba-2 block's parts

// Where the sums of a Mamba-2 block go.
struct SmallGradients {
    float *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w;
};

static __device__ inline float* small_gradient(const SmallGradients& to, int c) {
    if (c < ROW_PART_BIAS) return to.conv_w + c;
    if (c < ROW_PART_DT) return to.conv_b + c - ROW_PART_BIAS;
    if (c < ROW_PART_A_LOG) return to.dt_bias + c - ROW_PART_DT;
    if (c < ROW_PART_SKIP) return to.a_log + c - ROW_PART_A_LOG;
    if (c < ROW_PART_NORM) return to.skip + c - ROW_PART_SKIP;
    return to.norm_w + c - ROW_PART_NORM;
}

// Sum of column c over all lines, on the threads of lane 0; c outside: 0.
static __device__ inline float sum_column(const float* __restrict__ parts, int width, int lines, int c, int lane) {
    __shared__ float sums[SUM_LANES][SUM_COLUMNS], eighths[8][SUM_COLUMNS];
    const int local = (int)threadIdx.x % SUM_COLUMNS;
    float sum = 0.0f;
    if (c < width) {
#pragma unroll 16
        for (int line = lane; line < lines; line += SUM_LANES) sum += parts[(long long)line * width + c];
    }
    sums[lane][local] = sum;
    __syncthreads();
    if (lane < 8) {
        sum = 0.0f;
        for (int k = 0; k < 8; ++k) sum += sums[8 * lane + k][local];
        eighths[lane][local] = sum;
    }
    __syncthreads();
    sum = 0.0f;
    for (int k = 0; k < 8; ++k) sum += eighths[k][local];
    return sum;
}

// encoder_sum_parts: sums of the rows' and tiles' parts of the small gradients.
// launch: blocks 124, block 1024
// fuses: m1 grad w_norm
// m1_parts, m2_parts [B, 952]: taps [4, 160], their bias, dt_bias, a_log, skip [8], norm_w [128]; vsn_parts [tiles, 56].
// The first 60 blocks of threads add m1_parts, the next 60 m2_parts, the last 4 vsn_parts.
extern "C" __global__ void __launch_bounds__(1024) encoder_sum_parts(
    const float* __restrict__ m1_parts, const float* __restrict__ m2_parts, const float* __restrict__ vsn_parts,
    float* __restrict__ grad_w_m1_conv, float* __restrict__ grad_b_m1_conv, float* __restrict__ grad_b_m1_dt,
    float* __restrict__ grad_a_log_m1, float* __restrict__ grad_skip_m1, float* __restrict__ grad_w_m1_norm,
    float* __restrict__ grad_w_m2_conv, float* __restrict__ grad_b_m2_conv, float* __restrict__ grad_b_m2_dt,
    float* __restrict__ grad_a_log_m2, float* __restrict__ grad_skip_m2, float* __restrict__ grad_w_m2_norm,
    float* __restrict__ grad_b_vsn, int B, int tiles) {
    const int block = (int)blockIdx.x, lane = (int)threadIdx.x / SUM_COLUMNS, local = (int)threadIdx.x % SUM_COLUMNS;
    const int owner = block / SUM_BLOCKS, c = block % SUM_BLOCKS * SUM_COLUMNS + local;
    const SmallGradients to[2] = {
        {grad_w_m1_conv, grad_b_m1_conv, grad_b_m1_dt, grad_a_log_m1, grad_skip_m1, grad_w_m1_norm},
        {grad_w_m2_conv, grad_b_m2_conv, grad_b_m2_dt, grad_a_log_m2, grad_skip_m2, grad_w_m2_norm}};
    const float* parts = owner == 0 ? m1_parts : owner == 1 ? m2_parts : vsn_parts;
    const int width = owner < 2 ? ROW_PARTS : ENCODER_INPUT_DIM, lines = owner < 2 ? B : tiles;
    const float sum = sum_column(parts, width, lines, c, lane);
    if (lane > 0 || c >= width) return;
    *(owner == 0 ? small_gradient(to[0], c) : owner == 1 ? small_gradient(to[1], c) : grad_b_vsn + c) = sum;
}
