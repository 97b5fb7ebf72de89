// Time between the snapshots of a window, for networks that live in continuous time.

#include "market/gap.cuh"

// gpu_window_gaps: real time gaps of the rows' windows on a logarithmic scale.
// launch: threads W*B, block 128
// One thread a snapshot of a window, the same snapshots as snap_feature_assemble_batched's of that offset. ts_ns [N_SNAP]
// ns; cursor [B]; gap [W, B] = 0.2 ln(1 + ms since the snapshot before).
// The window's first snapshot has no predecessor inside it: 0. Clocks that stand still give 0.
extern "C" __global__ void gpu_window_gaps(const unsigned long long* ts_ns, const int* cursor, float* gap, int offset,
                                           int K, int W, int B) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= W * B) return;
    gap[i] = window_gaps_item(ts_ns, cursor[i % B], offset, K, i / B);
}
