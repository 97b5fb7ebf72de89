// The weights of IQN's expectations in one kernel: midpoint taus, their cosines, embeddings and mean.
#include "fused/iqn_update.cuh"

#define MEAN_UNITS 4  // units of the embedding a block owns

// rl_iqn_mean_embedding: W scaled by the mean embedding of the midpoint taus.
// launch: blocks HIDDEN_DIM/4, block 128
// fuses: rl_tau_midpoints, rl_iqn_cosines, rl_iqn_phi, rl_iqn_mean_weights
// One block, four units; n taus, at most 32. w_iqn_phi [64, 128], b_iqn_phi [128], w_iqn [128, P*11]; iqn_mean_w
// [128, P*11]. Every number as the unfused kernels give it.
extern "C" __global__ void rl_iqn_mean_embedding(const float* w_iqn_phi, const float* b_iqn_phi, const float* w_iqn,
                                                 float* iqn_mean_w, int n, int P) {
    __shared__ float cosines[IQN_MAX_TAUS][IQN_COSINES + 1], phi[IQN_MAX_TAUS][MEAN_UNITS], mean[MEAN_UNITS];
    const int tid = threadIdx.x, k0 = blockIdx.x * MEAN_UNITS, pairs = P * N_ACTIONS;
    for (int i = tid; i < n * IQN_COSINES; i += blockDim.x) {
        cosines[i / IQN_COSINES][i % IQN_COSINES] = cos_pi((i % IQN_COSINES) * ((i / IQN_COSINES + 0.5f) / n));
    }
    __syncthreads();
    for (int i = tid; i < n * MEAN_UNITS; i += blockDim.x) {
        const int unit = i % MEAN_UNITS, tau = i / MEAN_UNITS;
        float sum = 0.0f;
#pragma unroll 16
        for (int j = 0; j < IQN_COSINES; ++j) sum = fmaf(cosines[tau][j], w_iqn_phi[j * HIDDEN_DIM + k0 + unit], sum);
        sum += b_iqn_phi[k0 + unit];
        phi[tau][unit] = sum < 0.0f ? 0.0f : sum;
    }
    __syncthreads();
    if (tid < MEAN_UNITS) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) sum += phi[j][tid];
        mean[tid] = sum / n;
    }
    __syncthreads();
    for (int i = tid; i < pairs * MEAN_UNITS; i += blockDim.x) {
        const long long at = (long long)(k0 + i / pairs) * pairs + i % pairs;
        iqn_mean_w[at] = mean[i / pairs] * w_iqn[at];
    }
}
