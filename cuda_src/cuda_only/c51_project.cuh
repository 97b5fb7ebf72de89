// The categorical projection (Bellemare 2017) by sums: what of the next state's mass each atom gathers, by a quad of lanes.
#pragma once
#include "fused/c51_packed.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define C51_EDGE_SLACK 1e-4f  // atoms; mass this near beyond an end of the span is not called clipped

// Of a next distribution the first k atoms: their mass, and the sum of mass times index. k = 0 to 21.
struct alignas(8) Below {
    float mass, moment;
};
#define BELOW_ATOMS (C51_ATOMS + 1)

// Where mass of a next state lands, in atoms: base + stretch j, kept on [0, 20]. inverse = 1 / stretch, perhaps infinite.
struct Landing {
    float base, stretch, inverse;
};

// What lands below y: mass and moment.
static __device__ __forceinline__ Below landed_below(const Below* below, Landing at, float y) {
    // Atoms that land exactly at y may count or not: they add nothing. 0 * infinity is such a case, and becomes 0.
    const float count = ceilf((y - at.base) * at.inverse);
    return below[(int)fminf(fmaxf(count, 0.0f), (float)C51_ATOMS)];
}

// The part of the next distribution that atoms gather: mass p that lands at x gives p max(0, 1 - |x - i|) to atom i. That
// is the second difference, F(i + 1) - 2 F(i) + F(i - 1), of F(y) = sum of p max(0, y - x), which takes one look at
// `below` however many atoms land together. A lane finds F at two adjacent places of each block of eight and asks its
// neighbours for the two beside them. target: of the lane's six atoms.
static __device__ __forceinline__ void project(const Below* below, Landing at, float mass, int lane, float* target) {
    const int t = lane % 4;
    const Below start = landed_below(below, at, 0.0f);
    float even[3], odd[3];  // F(8 n + 2 t), F(8 n + 2 t + 1)
#pragma unroll
    for (int n = 0; n < 3; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float y = (float)(8 * n + 2 * t + k);
            const Below here = landed_below(below, at, y);
            // What lands below 0 counts as if it landed at 0.
            const float landed = fmaf(at.base, here.mass - start.mass, at.stretch * (here.moment - start.moment));
            (k ? odd : even)[n] = fmaf(y, here.mass, -landed);
        }
    }
    if (t == 0) even[0] = 0.0f;            // F(0)
    if (t == 2) odd[2] = even[2] + mass;   // F(21): what lands beyond 20 counts as if it landed at 20
    const int quad = lane & ~3;
#pragma unroll
    for (int n = 0; n < 3; ++n) {
        float before = __shfl_sync(0xffffffffu, t == 3 && n > 0 ? odd[n > 0 ? n - 1 : 0] : odd[n], quad | ((t + 3) & 3));
        const float after = __shfl_sync(0xffffffffu, t == 0 && n < 2 ? even[n < 2 ? n + 1 : 2] : even[n],
                                        quad | ((t + 1) & 3));
        if (n == 0 && t == 0) before = 0.0f;
        target[2 * n] = (odd[n] - even[n]) - (even[n] - before);
        target[2 * n + 1] = (after - odd[n]) - (odd[n] - even[n]);
    }
    if (t == 2) target[5] = 0.0f;  // places without an atom
    if (t == 3) target[4] = target[5] = 0.0f;
}

// Mass that lands outside the span.
static __device__ __forceinline__ float landed_outside(const Below* below, Landing at, float mass) {
    const float inside = landed_below(below, at, C51_ATOMS - 1 + C51_EDGE_SLACK).mass;
    return landed_below(below, at, -C51_EDGE_SLACK).mass + (mass - inside);
}

#endif
