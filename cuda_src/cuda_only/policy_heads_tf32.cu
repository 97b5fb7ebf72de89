// The policy and value heads' products on tensor cores: outputs of every class, and their gradients' way back.
#include "cuda_only/policy_heads_tf32.cuh"

#define POLICY_ELEMENTS 128  // of a block of the sums
#define POLICY_SHARES 8      // shares of the blocks' sums that are added side by side

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static_assert(sizeof(PolicyForward<64, 112>::Shared) <= 123904 && sizeof(PolicyForward<16, 240>::Shared) <= 150784 &&
                  sizeof(PolicyForward<16, 112>::Shared) <= 77056 && sizeof(PolicyBackward<64, 112>::Shared) <= 125952 &&
                  sizeof(PolicyBackward<16, 112>::Shared) <= 76032 && sizeof(PolicyBackward<16, 240>::Shared) <= 149760,
              "the launch rules ask for less shared memory than a tile takes");
#endif

// rl_policy_heads_tf32: h -> outputs of both heads for every class, without bias.
// launch: blocks (rows + each - 1)/each if rows < 132*each else 132, block 512, shared 123904 if each > 16 else (77056 if P <= 9 else 150784)
// chain: 10 us
// Tiles of `each` rows, 16 or, for P at most 9, 64 (policy_heads_tf32.cuh). h [rows, 128]; w_pi [128, P*11], w_v [128,
// P]; pi_all [rows, P*11], v_all [rows, P].
extern "C" __global__ void __launch_bounds__(POLICY_THREADS, 1) rl_policy_heads_tf32(
    const float* h, const float* w_pi, const float* w_v, float* pi_all, float* v_all, int rows, int each, int P) {
    extern __shared__ __align__(16) float memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    if (each == 64) PolicyForward<64, 112>::run(memory, h, w_pi, w_v, pi_all, v_all, rows, P);
    else if (POLICY_WIDTH(P) == 112) PolicyForward<16, 112>::run(memory, h, w_pi, w_v, pi_all, v_all, rows, P);
    else PolicyForward<16, 240>::run(memory, h, w_pi, w_v, pi_all, v_all, rows, P);
#endif
}

// rl_policy_backward_tf32: gradients of the encodings; of the heads' tensors the blocks' sums.
// launch: blocks (rows + each - 1)/each if rows < 132*each else 132, block 512, shared 125952 if each > 16 else (76032 if P <= 9 else 149760)
// chain: 15 us
// updates: grad_h
// Tiles as above. h, grad_h [rows, 128]; grad_pi_all [rows, P*11], grad_v_all [rows, P]; context [rows, 3]; w_pi, w_v as
// above; policy_parts [blocks, 132*WIDTH] (policy_heads_tf32.cuh). first: grad_h is overwritten, else added to.
extern "C" __global__ void __launch_bounds__(POLICY_THREADS, 1) rl_policy_backward_tf32(
    const float* h, const float* grad_pi_all, const float* grad_v_all, const float* context, const float* w_pi,
    const float* w_v, float* grad_h, float* policy_parts, int rows, int each, int first, int P) {
    extern __shared__ __align__(16) float memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const PolicyGradients update = {h, grad_pi_all, grad_v_all, context, w_pi, w_v, grad_h, policy_parts, rows, P, first};
    if (each == 64) PolicyBackward<64, 112>::run(memory, update);
    else if (POLICY_WIDTH(P) == 112) PolicyBackward<16, 112>::run(memory, update);
    else PolicyBackward<16, 240>::run(memory, update);
#endif
}

// rl_policy_backward_reduce: the blocks' sums become the gradients of the heads' tensors.
// launch: blocks (132*(112 if P <= 9 else 240) + 127)/128, block 1024
// Eight groups of 128 threads share the blocks' sums, then theirs are added in order. policy_parts [blocks, 132*WIDTH].
// grad_w_pi [128, P*11], grad_b_pi [P*11], grad_w_pi_ctx [3, P*11] and the value's; terms = 0: those of the context are
// left alone.
extern "C" __global__ void __launch_bounds__(POLICY_ELEMENTS * POLICY_SHARES) rl_policy_backward_reduce(
    const float* policy_parts, float* grad_w_pi, float* grad_b_pi, float* grad_w_pi_ctx, float* grad_w_v, float* grad_b_v,
    float* grad_w_v_ctx, int terms, int blocks, int P) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    __shared__ float sums[POLICY_SHARES][POLICY_ELEMENTS];
    const int width = POLICY_WIDTH(P), size = POLICY_PART_SIZE(width);
    const int share = threadIdx.x / POLICY_ELEMENTS, lane = threadIdx.x % POLICY_ELEMENTS;
    const int i = blockIdx.x * POLICY_ELEMENTS + lane, each = (blocks + POLICY_SHARES - 1) / POLICY_SHARES;
    const int last = (share + 1) * each < blocks ? (share + 1) * each : blocks;
    float sum = 0.0f;
    if (i < size) {
#pragma unroll 17
        for (int b = share * each; b < last; ++b) sum += policy_parts[(long long)b * size + i];
    }
    sums[share][lane] = sum;
    __syncthreads();
    if (share != 0 || i >= size) return;
    for (int g = 1; g < POLICY_SHARES; ++g) sum += sums[g][lane];
    const int row = i / width, c = i - row * width, term = row - HIDDEN_DIM - 1;
    float* to;
    if (row < HIDDEN_DIM) to = policy_column(grad_w_pi, grad_w_v, row, c, P);
    else if (row == HIDDEN_DIM) to = policy_column(grad_b_pi, grad_b_v, 0, c, P);
    else to = terms ? policy_column(grad_w_pi_ctx, grad_w_v_ctx, term, c, P) : nullptr;
    if (to) *to = sum;
#endif
}
