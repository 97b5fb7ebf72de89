// A Mamba-2 block between its two projections, backward, in one kernel on tensor cores (mamba2_chunk_scan.cuh).
//
// Does what the kernels of nets/mamba2_backward.cu do, after mamba2_chunk_forward. It walks the chunks once, backward in
// time: the state before each was kept, everything else of the forward is computed again. Sums over the row go to one
// line of parts; encoder_sum_parts adds the lines.
// Bytes a token: 2,212 read, 1,184 written. While a chunk is worked on the one before it is copied to shared memory.
// Three barriers a chunk. Shared memory: 101 kB, dynamic. Edge cases: mamba2_chunk.cuh.
#include "cuda_only/mamba2_chunk_scan.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Chunk q of the head, from its inputs to the gradients of z, x and dt and its parts of those of B and C.
static __device__ __forceinline__ void head_backward(BackShared* row, BackCarry* carry, const BackArrays& a,
                                                     const BackInputs& in, const float (&values)[3], int q, int head,
                                                     int lane) {
    const int n = chunk_size(q, a.W), g = lane / 4, t = lane % 4;
    float rstd[2], slope[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) rstd[r] = g + 8 * r < n ? a.rstd[row_at(q * CHUNK + g + 8 * r, a.B, 1)] : 0.0f;
    const OwnStep own = find_steps(row->steps[head], in.proj, values[0], -values[1] * CHUNK_LOG2_E, n, head, lane);
    ChunkSums y = output_again(row, in, own.of_chunk(lane), slope, values[2], head, lane);
    ChunkSums gates;
    gate_parts(row, carry, in, &gates, y, rstd, head, g, t);
    __syncthreads();  // the norm's means are there
    gate_backward(row, a, in, &y, gates, rstd, q, n, head, lane);
    __syncwarp();  // x and dy are there
    StepTerms terms = {};
    const float behind = carry->log_decay;
    ChunkLeft n_turned;
    channels_backward(*row, carry, &terms, &n_turned, a, in, own, slope, values[2], q, n, head, lane);
    maps_backward(row, carry, &terms, n_turned, in.state[head], own, head, lane);
    step_gradients(carry, a, terms, own, behind, values[1], q, n, head, lane);
}

static __device__ __forceinline__ void backward_row(const BackArrays& a, BackShared* row) {
    int lane = (int)threadIdx.x % 32;
    const int head = (int)threadIdx.x / 32, last = chunk_count(a.W) - 1;
    if (threadIdx.x == 0) row->full[0].ready(), row->full[1].ready();
    __syncthreads();
    load_chunk(&row->inputs[last & 1], &row->full[last & 1], a, last, head, lane);
    load_weights(&row->weights, a.conv_w, a.conv_b, a.norm_w);
    const float values[3] = {a.dt_bias[head], expf(a.a_log[head]), a.skip[head]};
    BackCarry carry = {};
    row->full[last & 1].wait(0);
    __syncthreads();
    convolve_bc(&row->bc, row->inputs[last & 1].proj, row->weights, head, lane);
    for (int q = last; q >= 0; --q) {
        BackInputs* next = &row->inputs[(q + 1) & 1];
        lane = fresh(lane);
        __syncthreads();  // B and C are there, and nobody reads the other place any more
        if (q > 0) load_chunk(next, &row->full[(q + 1) & 1], a, q - 1, head, lane);
        head_backward(row, &carry, a, row->inputs[q & 1], values, q, head, lane);
        if (q > 0) row->full[(q + 1) & 1].wait((last - q + 1) >> 1 & 1);
        __syncthreads();  // the heads' parts of dB and dC are there, and the next chunk
        bc_backward(&carry, *row, a, row->inputs[q & 1], q, chunk_size(q, a.W), head, lane);
        if (q > 0) convolve_bc(&row->bc, next->proj, row->weights, head, lane);
    }
    write_parts(carry, a.parts + (long long)blockIdx.x * ROW_PARTS, head, lane);
}

#endif

// mamba2_chunk_backward: from the gradient of the normalised output to that of the in-projection.
// launch: blocks B, block 256, shared 103088
// chain: 18 us
// fuses: mamba2_norm_backward, mamba2_scan_backward_bc, mamba2_scan_backward_x, mamba2_scan_backward_dt, mamba2_conv_backward
// One block a row. proj, grad_proj [W, B, 296]; s [W, B, 128]: states of mamba2_chunk_forward; rstd [W, B]; conv_w
// [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128]; grad [W, B, 128]: dL/dnorm; parts [B, 952]: taps
// [4, 160], their bias, dt_bias, a_log, skip [8], norm_w [128].
extern "C" __global__ void __launch_bounds__(256, 2) mamba2_chunk_backward(
    const float* __restrict__ proj, const float* __restrict__ s, const float* __restrict__ rstd,
    const float* __restrict__ conv_w, const float* __restrict__ conv_b, const float* __restrict__ dt_bias,
    const float* __restrict__ a_log, const float* __restrict__ skip, const float* __restrict__ norm_w,
    const float* __restrict__ grad, float* __restrict__ grad_proj, float* __restrict__ parts, int W, int B) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float chunk_memory[];
    static_assert(sizeof(BackShared) == 103088, "the launch line names the size");
    backward_row({proj, s, rstd, conv_w, conv_b, dt_bias, a_log, skip, norm_w, grad, grad_proj, parts, W, B},
                 (BackShared*)chunk_memory);
#endif
}
