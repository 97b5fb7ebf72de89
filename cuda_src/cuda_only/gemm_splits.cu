// Second half of a matrix product whose K was split over blocks: adds the partial planes of the workspace.
//
// Thread mapping: one block, 32 adjacent elements, eight threads each. Shared memory: 1 kB, static.
// Order of addition: fixed by the number of splits alone, which depends on the shape of the product.
// gemm_sum_splits: out[m,n] = (accumulate ? out : 0) + sum over splits of partial[split][m][n].
// Eight threads share an element: each adds an eighth of the splits in ascending order, then thread 0 adds the
// eight sums in ascending order. Threads of a warp own adjacent elements.
// launch: blocks (M*N + 31)/32, block 256
// updates: out
extern "C" __global__ void __launch_bounds__(256) gemm_sum_splits(
    const float* partial, float* out, int M, int N, int ldo, int splits, int accumulate) {
    __shared__ float group_sums[8][32];
    int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    long long plane = (long long)M * N, element = (long long)blockIdx.x * 32 + lane;
    int each = (splits + 7) / 8, first = group * each;
    int last = first + each < splits ? first + each : splits;
    float sum = 0.0f;
    if (element < plane) {
#pragma unroll 8
        for (int s = first; s < last; ++s) sum += partial[s * plane + element];
    }
    group_sums[group][lane] = sum;
    __syncthreads();
    if (group == 0 && element < plane) {
        for (int g = 1; g < 8; ++g) sum += group_sums[g][lane];
        float* to = out + element / N * ldo + element % N;
        *to = accumulate ? *to + sum : sum;
    }
}
