// Second half of a matrix product whose K was split over blocks: adds the partial planes of the workspace.
//
// Thread mapping: one block, 32 adjacent elements, eight threads each. Shared memory: 1 kB, static.
// Order of addition: fixed by the number of splits alone, which depends on the shape of the product.
// gemm_sum_splits: out[m,n] = addend[m,n] + sum over splits of partial[split][m][n]; addend may be null, or out.
// Where column_sums is not null a plane has one more row, and its sum goes there (gemm_tall.cu).
// Eight threads share an element: each adds an eighth of the splits in ascending order, then thread 0 adds the
// eight sums in ascending order. Threads of a warp own adjacent elements.
// launch: blocks (PLANE + 31)/32, block 256
extern "C" __global__ void __launch_bounds__(256) gemm_sum_splits(
    const float* partial, const float* addend, float* out, float* column_sums, int M, int N, int ldo, int ldd, int splits) {
    __shared__ float group_sums[8][32];
    int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    long long result = (long long)M * N, plane = column_sums ? result + N : result;
    long long element = (long long)blockIdx.x * 32 + lane;
    int each = (splits + 7) / 8, first = group * each;
    int last = first + each < splits ? first + each : splits;
    float sum = 0.0f;
    if (element < plane) {
#pragma unroll 8
        for (int s = first; s < last; ++s) sum += partial[s * plane + element];
    }
    group_sums[group][lane] = sum;
    __syncthreads();
    if (group != 0 || element >= plane) return;
    for (int g = 1; g < 8; ++g) sum += group_sums[g][lane];
    long long row = element / N, col = element % N;
    if (element >= result) column_sums[col] = sum;
    else out[row * ldo + col] = sum + (addend ? addend[row * ldd + col] : 0.0f);
}
