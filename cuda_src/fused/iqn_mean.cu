// The weights of IQN's expectations in one kernel: midpoint taus, their cosines, embeddings and mean.
#include "include/reduce.cuh"
#include "nets/iqn.cuh"

#define MEAN_UNITS 4    // units of the embedding a block owns
#define MEAN_SHARES 4   // adjacent lanes that share a sum over cosines
#define MEAN_TAUS 32    // at most
#define MEAN_THREADS (MEAN_UNITS * MEAN_SHARES * MEAN_TAUS)

// rl_iqn_mean_embedding: W scaled by the mean embedding of the midpoint taus.
// launch: blocks HIDDEN_DIM/4, block 512
// fuses: rl_tau_midpoints, rl_iqn_cosines, rl_iqn_phi, rl_iqn_mean_weights
// One block, four units; a warp two taus, four lanes a sum, each a quarter of the cosines, then pairwise. n taus, at
// most 32. w_iqn_phi [64, 128], b_iqn_phi [128], w_iqn [128, P*11]; iqn_mean_w [128, P*11].
extern "C" __global__ void __launch_bounds__(MEAN_THREADS) rl_iqn_mean_embedding(
    const float* w_iqn_phi, const float* b_iqn_phi, const float* w_iqn, float* iqn_mean_w, int n, int P) {
    __shared__ float phi[MEAN_TAUS][MEAN_UNITS];
    const int tid = threadIdx.x, share = tid % MEAN_SHARES, unit = tid / MEAN_SHARES % MEAN_UNITS;
    const int tau = tid / (MEAN_SHARES * MEAN_UNITS), k0 = blockIdx.x * MEAN_UNITS, pairs = P * N_ACTIONS;
    const float middle = (tau + 0.5f) / n;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < IQN_COSINES / MEAN_SHARES; ++i) {
        const int cosine = i * MEAN_SHARES + share;
        sum = fmaf(cos_pi(cosine * middle), w_iqn_phi[cosine * HIDDEN_DIM + k0 + unit], sum);
    }
    sum = group_sum<MEAN_SHARES>(sum) + b_iqn_phi[k0 + unit];
    if (share == 0) phi[tau][unit] = tau < n && !(sum < 0.0f) ? sum : 0.0f;
    __syncthreads();
    const int own = tid / (MEAN_THREADS / MEAN_UNITS), lane = tid % (MEAN_THREADS / MEAN_UNITS);
    float mean = 0.0f;
#pragma unroll
    for (int j = 0; j < MEAN_TAUS; ++j) mean += phi[j][own];
    mean /= n;
    for (int c = lane; c < pairs; c += MEAN_THREADS / MEAN_UNITS) {
        const int at = (k0 + own) * pairs + c;
        iqn_mean_w[at] = mean * w_iqn[at];
    }
}
