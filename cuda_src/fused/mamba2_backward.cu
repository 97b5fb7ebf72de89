// A Mamba-2 block between its two projections, backward, in one kernel: norm, gate, scans, step sizes, convolution.
//
// Does what mamba2_norm_backward, mamba2_scan_backward_bc, _x and _dt and mamba2_conv_backward do (nets/mamba2.cu has
// the formulas), bit for bit. x, B, C, dt and decay are computed again from the in-projection instead of being kept.
// A block of threads goes over its row twice, forward and backward in time. Sums over the row go to one line of parts;
// encoder_sum_parts adds the lines of all rows.
// Bytes a token: 2,200 read, 1,760 written, and what the second pass finds no more in the cache (1,730).
// Thread mapping: mamba2_pipeline.cuh. First pass: five warps convolve, four norm, two scan. Second pass: five convolve
// and take the convolution back, two scan for x, two for B, two do the step sizes' gradients.
// Edge cases: as in nets/mamba2.cu; NaN and infinity pass through.
#include "fused/mamba2_first_pass.cuh"
#include "fused/mamba2_second_pass.cuh"

// mamba2_row_backward: from the gradient of the normalised output to that of the in-projection.
// launch: blocks B, block 352, shared 52736
// updates: grad
// fuses: mamba2_norm_backward, mamba2_scan_backward_bc, mamba2_scan_backward_x, mamba2_scan_backward_dt, mamba2_conv_backward
// One block a row. proj, grad_proj [W, B, 296]; s, grad [W, B, 128]: dL/dnorm, becomes dL/dy; rstd [W, B];
// conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128]; grad_c [W, B, 16]: of C after SiLU;
// parts [B, 952]: taps [4, 160], their bias, dt_bias, a_log, skip [8], norm_w [128], summed over the row.
extern "C" __global__ void __launch_bounds__(BACK_THREADS, 2) mamba2_row_backward(
    const float* __restrict__ proj, const float* __restrict__ s, const float* __restrict__ rstd,
    const float* __restrict__ conv_w, const float* __restrict__ conv_b, const float* __restrict__ dt_bias,
    const float* __restrict__ a_log, const float* __restrict__ skip, const float* __restrict__ norm_w,
    float* __restrict__ grad, float* __restrict__ grad_proj, float* __restrict__ grad_c, float* __restrict__ parts,
    int W, int B) {
    extern __shared__ __align__(16) float row_memory[];
    static_assert(sizeof(BackShared) == 52736 * (sizeof(float) / 4), "the launch line names the size");
    BackShared* row = (BackShared*)row_memory;
    const BackArrays a = {proj,   s,    rstd,      conv_w, conv_b, dt_bias, a_log, skip,
                          norm_w, grad, grad_proj, grad_c, parts,  W,       B};
    const int t = (int)threadIdx.x;
    if (t < MAMBA_INNER) row->norm_w[t] = norm_w[t];
    if (t < MAMBA_HEADS) row->skip[t] = skip[t];
    first_pass(a, row, t);
    row_barrier();
    second_pass(a, row, t);
}
