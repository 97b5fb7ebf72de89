// What opens the replay updates of an iteration: noise of both heads, and their weights under it in packed order.
#include "fused/c51_packed.cuh"

// rl_c51_both_noises: the noise of both heads.
// launch: threads 2*n, block 64
// updates: rng_noise, rng_target_noise
// fuses: rl_sample_noise
// One thread an element. rng_noise, rng_target_noise [n] xorshift32 states; noises [2, n]: online, target; of each the
// inputs' factors, then the outputs'.
extern "C" __global__ void rl_c51_both_noises(unsigned int* rng_noise, unsigned int* rng_target_noise, float* noises,
                                              int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 2 * n) noises[i] = noise_factor(i < n ? rng_noise + i : rng_target_noise + (i - n));
}

// rl_c51_pack: the noisy weights of both heads, packed (c51_packed.cuh).
// launch: blocks (P*N_ACTIONS+7)/8*(HIDDEN_DIM/8), block 512
// fuses: rl_noisy_compose
// A block a tile, whose three sums in c51_tile_sums [tiles, 3] become 0. w_c51, sw_c51 [128, P*11*21] and b_c51, sb_c51
// [P*11*21], and the target's; noises [2, 128 + P*11*21]. The numbers that rl_noisy_compose gives, in packed form.
extern "C" __global__ void rl_c51_pack(const float* w_c51, const float* b_c51, const float* sw_c51, const float* sb_c51,
                                       const float* target_w_c51, const float* target_b_c51, const float* target_sw_c51,
                                       const float* target_sb_c51, const float* noises, unsigned int* c51_packed_w,
                                       float* c51_packed_b, float* c51_tile_sums, int P) {
    __shared__ C51Tile tile;
    const C51Corner at = c51_corner(blockIdx.x, P);
    const int outputs = P * N_ACTIONS * C51_ATOMS;
    clear_tile(&tile);
    if (threadIdx.x < 3) c51_tile_sums[3 * blockIdx.x + threadIdx.x] = 0.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < at.rows * at.pairs * C51_ATOMS; i += blockDim.x) {
        const C51Element e = c51_element(i, at);
        const bool bias = e.row == TILE_INPUTS;
        const long long from = bias ? e.output : (long long)(at.input0 + e.row) * outputs + e.output;
        tile.head[0][e.row][e.place] =
            c51_noisy((bias ? b_c51 : w_c51)[from], (bias ? sb_c51 : sw_c51)[from], noises, e, at.input0);
        tile.head[1][e.row][e.place] =
            c51_noisy((bias ? target_b_c51 : target_w_c51)[from], (bias ? target_sb_c51 : target_sw_c51)[from],
                      noises + HIDDEN_DIM + outputs, e, at.input0);
    }
    __syncthreads();
    store_packed(tile, at, c51_packed_w, c51_packed_b, P);
}
