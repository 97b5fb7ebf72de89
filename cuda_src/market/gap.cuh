// What the kernel in gap.cu does, as a function that a fused kernel may call as well.
#pragma once

#define GAP_SCALE 0.2f          // brings the logarithm of market gaps (0 to 16) to order 1
#define GAP_MS_PER_NS 1e-6f

// gpu_window_gaps, snapshot w of the window of K snapshots and more that ends its first K at `cursor`.
static __device__ inline float window_gaps_item(const unsigned long long* ts_ns, int cursor, int offset, int K, int w) {
    if (w == 0) return 0.0f;
    const long long at = (long long)cursor - (K - 1) + offset + w;
    return GAP_SCALE * log1pf((float)(ts_ns[at] - ts_ns[at - 1]) * GAP_MS_PER_NS);
}
