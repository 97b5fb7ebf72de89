// A Mamba-2 block between its two projections, backward, in two kernels: forward in time, then backward in time.
//
// Together they do what mamba2_norm_backward, mamba2_scan_backward_bc, _x and _dt and mamba2_conv_backward do
// (nets/mamba2.cuh has the formulas), bit for bit. x, B, C, dt and decay are computed again from the in-projection
// instead of being kept. Two kernels and not one: with the roles of both the compiler runs out of registers.
// A block of threads owns a row. Sums over the row go to one line of parts; encoder_sum_parts adds the lines.
// Bytes a token: first pass 2,230 read, 1,090 written; second pass 1,790 read, 670 written.
// Thread mapping: mamba2_pipeline.cuh. First pass: five warps convolve, four norm, two scan. Second pass: five convolve
// and take the convolution back, two scan for x, two for B, two do the step sizes' gradients.
// Edge cases: as in nets/mamba2.cuh; NaN and infinity pass through.
#include "fused/mamba2_first_pass.cuh"
#include "fused/mamba2_second_pass.cuh"

// mamba2_row_backward_norm: gradients of y, z and C from that of the normalised output.
// launch: blocks B, block 352
// updates: grad
// fuses: mamba2_norm_backward, mamba2_scan_backward_bc
// One block a row. proj, grad_proj [W, B, 296]: columns of z are written; s, grad [W, B, 128]: dL/dnorm, becomes dL/dy;
// rstd [W, B]; conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128]; grad_c [W, B, 16]: of C after
// SiLU; parts [B, 952]: columns of norm_w are written. Shared memory: 45 kB, static.
extern "C" __global__ void __launch_bounds__(BACK_THREADS, 2) mamba2_row_backward_norm(
    const float* __restrict__ proj, const float* __restrict__ s, const float* __restrict__ rstd,
    const float* __restrict__ conv_w, const float* __restrict__ conv_b, const float* __restrict__ dt_bias,
    const float* __restrict__ a_log, const float* __restrict__ skip, const float* __restrict__ norm_w,
    float* __restrict__ grad, float* __restrict__ grad_proj, float* __restrict__ grad_c, float* __restrict__ parts,
    int W, int B) {
    __shared__ FirstShared row;
    first_pass({proj, s, rstd, conv_w, conv_b, dt_bias, a_log, skip, norm_w, grad, grad_proj, grad_c, parts, W, B}, &row,
               (int)threadIdx.x);
}

// mamba2_row_backward_scan: from the gradients of y and C to that of the in-projection.
// launch: blocks B, block 352, shared 52224
// updates: grad_proj, parts
// fuses: mamba2_scan_backward_x, mamba2_scan_backward_dt, mamba2_conv_backward
// One block a row. proj, grad_proj [W, B, 296]: columns of x, B, C and dt are written; s, grad_y [W, B, 128]; grad_c
// [W, B, 16]; conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; parts [B, 952]: taps [4, 160], their bias,
// dt_bias, a_log and skip [8] are written, norm_w [128] stays.
extern "C" __global__ void __launch_bounds__(BACK_THREADS, 2) mamba2_row_backward_scan(
    const float* __restrict__ proj, const float* __restrict__ s, const float* __restrict__ conv_w,
    const float* __restrict__ conv_b, const float* __restrict__ dt_bias, const float* __restrict__ a_log,
    const float* __restrict__ skip, const float* __restrict__ grad_y, const float* __restrict__ grad_c,
    float* __restrict__ grad_proj, float* __restrict__ parts, int W, int B) {
    extern __shared__ __align__(16) float row_memory[];
    static_assert(sizeof(SecondShared) == 52224 * (sizeof(float) / 4), "the launch line names the size");
    second_pass({proj, s, conv_w, conv_b, dt_bias, a_log, skip, grad_y, grad_c, grad_proj, parts, W, B},
                (SecondShared*)row_memory, (int)threadIdx.x);
}
