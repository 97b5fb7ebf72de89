// The CfC cell over all snapshots in one launch (formulas: nets/cfc.cu): forward, with and without keeping.
//
// Thread mapping: cfc_sequence.cuh. A snapshot is two products with a barrier behind each: h times the recurrent half
// of the backbone gives u, u times the gates' weights gives h. What is stored is float32; u and h go into the products
// as halves, rounded once.
#include "cuda_only/cfc_forward.cuh"

// cfc_sequence_forward: the CfC cell over all snapshots; u, gates and states stay for the backward.
// launch: blocks (B + rows*tiles - 1)/(rows*tiles), block 256, shared 4096*tiles
// chain: 1.1*W us
// fuses: cfc_backbone_forward, cfc_gates_forward
// pre [W, B, 128] = x W_b (upper half); w_cfc_backbone [256, 128], its lower half is used; b_cfc_backbone [128];
// w_cfc_gates [128, 512]; b_cfc_gates [512]; gap [W, B]; u [W, B, 128]; gates [W, B, 512]: f, g, blend, the fourth part
// is left; states [W+1, B, 128]: h before each snapshot, zero at first; h [T+1, B, 128]: the last T + 1 of them.
// rows: of a tile, 4 (then tiles = 1) or 8; tiles: of a block.
extern "C" __global__ void __launch_bounds__(256, 1) cfc_sequence_forward(
    const float* __restrict__ pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ b_cfc_backbone,
    const float* __restrict__ w_cfc_gates, const float* __restrict__ b_cfc_gates, const float* __restrict__ gap,
    float* __restrict__ u, float* __restrict__ gates, float* __restrict__ states, float* __restrict__ h, int W, int T,
    int B, int rows, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const CfcForward p = {pre, w_cfc_backbone, b_cfc_backbone, w_cfc_gates, b_cfc_gates, gap,
                          u, gates, states, h, W, T, B};
    extern __shared__ __align__(16) unsigned int memory[];
    if (rows == 4) sequence_forward<true, 1>(p, tiles, memory);
    else sequence_forward<true, 2>(p, tiles, memory);
#endif
}

// cfc_sequence_encode: the CfC cell over all snapshots without a backward behind it: h alone.
// launch: blocks (B + rows*tiles - 1)/(rows*tiles), block 256, shared 4096*tiles
// chain: 1.0*W us
// fuses: cfc_backbone_forward, cfc_gates_forward
extern "C" __global__ void __launch_bounds__(256, 1) cfc_sequence_encode(
    const float* __restrict__ pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ b_cfc_backbone,
    const float* __restrict__ w_cfc_gates, const float* __restrict__ b_cfc_gates, const float* __restrict__ gap,
    float* __restrict__ h, int W, int T, int B, int rows, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const CfcForward p = {pre, w_cfc_backbone, b_cfc_backbone, w_cfc_gates, b_cfc_gates, gap,
                          nullptr, nullptr, nullptr, h, W, T, B};
    extern __shared__ __align__(16) unsigned int memory[];
    if (rows == 4) sequence_forward<false, 1>(p, tiles, memory);
    else sequence_forward<false, 2>(p, tiles, memory);
#endif
}
