// What a block of the critic's step does: a tile of the C51 head, or elements of the flat vectors.
#pragma once
#include "fused/c51_packed.cuh"
#include "include/reduce.cuh"
#include "nets/adam.cuh"
#include "nets/polyak.cuh"

#define STEP_ELEMENTS 2048   // of the flat vectors a block
#define TD_ERRORS 3          // NONFINITE_Q of nets/target.py
#define REFUSED 7            // behind the losses' elements of nonfinite_parts: what this iteration's updates met

// The flat vectors of the critic's span: parameters, their gradients and moments, target copies.
struct CriticSpan {
    float *w, *m, *v, *target;
    const float* g;
};

// One element with its moments and its target copy: all is loaded before anything is stored, so that the loads of
// several elements are under way together.
struct SpanElement {
    float w, m, v, target;
};

static __device__ inline SpanElement load_element(const CriticSpan& span, long long i) {
    return SpanElement{span.w[i], span.m[i], span.v[i], span.target[i]};
}

// Adam where the update is applied, then the target copy moves.
static __device__ inline void step_element(const CriticSpan& span, const AdamRule& rule, long long i, SpanElement* e,
                                           float g, bool apply, float tau) {
    if (apply) {
        e->w = adam_step(rule, e->w, g, &e->m, &e->v);
        span.w[i] = e->w;
        span.m[i] = e->m;
        span.v[i] = e->v;
    }
    e->target = fmaf(tau, e->w - e->target, e->target);
    span.target[i] = e->target;
}

// A thread's share of STEP_ELEMENTS elements from `first` on, with their gradients; end: of the span.
#define FLAT_ELEMENTS (STEP_ELEMENTS / TILE_THREADS)
struct FlatShare {
    SpanElement element[FLAT_ELEMENTS];
    float g[FLAT_ELEMENTS];
};

static __device__ inline FlatShare load_flat(const CriticSpan& span, int first, int end) {
    FlatShare share;
#pragma unroll
    for (int j = 0; j < FLAT_ELEMENTS; ++j) {
        const int i = first + threadIdx.x + j * TILE_THREADS;
        if (i >= end) continue;
        share.element[j] = load_element(span, i);
        share.g[j] = span.g[i];
    }
    return share;
}

static __device__ inline void step_flat(const CriticSpan& span, const AdamRule& rule, int first, int end, FlatShare share,
                                        bool apply, float tau) {
#pragma unroll
    for (int j = 0; j < FLAT_ELEMENTS; ++j) {
        const int i = first + threadIdx.x + j * TILE_THREADS;
        if (i < end) step_element(span, rule, i, &share.element[j], share.g[j], apply, tau);
    }
}

// The noise that a tile meets: of this update's online head, then of the next one's online and target heads.
struct TileNoise {
    float input[3][TILE_INPUTS], output[3][TILE_PAIRS * C51_ATOMS];
};

// Fills it; without next_noises the last two stay as they are. All threads; barriers are the caller's.
static __device__ inline void load_noise(TileNoise* noise, C51Corner at, const float* noises, const float* next_noises,
                                         int P) {
    const int each = HIDDEN_DIM + c51_places(P).outputs, outputs = at.pairs * C51_ATOMS, own = TILE_INPUTS + outputs;
    for (int i = threadIdx.x; i < (next_noises ? 3 : 1) * own; i += blockDim.x) {
        const int set = i / own, k = i - set * own;
        const float* from = set == 0 ? noises : next_noises + (set - 1) * each;
        if (k < TILE_INPUTS) noise->input[set][k] = from[at.input0 + k];
        else noise->output[set][k - TILE_INPUTS] = from[HIDDEN_DIM + at.pair0 * C51_ATOMS + k - TILE_INPUTS];
    }
}

// What a thread has of a tile: its elements with moments, target copies and gradients, all asked for before anything is
// decided or stored.
#define SLICES_AHEAD 8  // of an element's gradient
#define SHARE_ELEMENTS (((TILE_INPUTS + 1) * TILE_PAIRS * C51_ATOMS + TILE_THREADS - 1) / TILE_THREADS)
struct TileShare {
    SpanElement w[SHARE_ELEMENTS], sw[SHARE_ELEMENTS];
    float g[SHARE_ELEMENTS];
};

// Place in the span of an element's weight, or of its bias.
static __device__ inline long long weight_place(C51Element e, C51Corner at, C51Places places) {
    return e.row == TILE_INPUTS ? places.b + e.output : (long long)(at.input0 + e.row) * places.outputs + e.output;
}

static __device__ inline TileShare load_share(const CriticSpan& span, C51Corner at, const float* grad_parts, int P,
                                              int slices) {
    const C51Places places = c51_places(P);
    const long long input_size = (long long)P * N_ACTIONS * C51_PLACES, slice_size = (HIDDEN_DIM + 1) * input_size;
    TileShare share;
#pragma unroll
    for (int j = 0; j < SHARE_ELEMENTS; ++j) {
        const int i = threadIdx.x + j * TILE_THREADS;
        if (i >= at.rows * at.pairs * C51_ATOMS) continue;
        const C51Element e = c51_element(i, at);
        const long long at_w = weight_place(e, at, places);
        share.w[j] = load_element(span, at_w);
        share.sw[j] = load_element(span, at_w + places.sw);
        const float* part = grad_parts + (at.input0 + e.row) * input_size + at.pair0 * C51_PLACES + e.place;
        share.g[j] = 0.0f;
        for (int first = 0; first < slices; first += SLICES_AHEAD) {
            float slice[SLICES_AHEAD];  // behind the last one the first again: no load waits for a branch
#pragma unroll
            for (int s = 0; s < SLICES_AHEAD; ++s) slice[s] = part[(first + s < slices ? first + s : 0) * slice_size];
#pragma unroll
            for (int s = 0; s < SLICES_AHEAD; ++s) share.g[j] = first + s < slices ? share.g[j] + slice[s] : share.g[j];
        }
    }
    return share;
}

// Sums of a tile: squares of the gradient, of W - W_target and of W, for the norms that are published.
struct TileSums {
    float gradient, apart, weight;
};

// A tile of both C51 heads: the step, the target copies, and with compose the weights under the next update's noise into
// `tile`.
static __device__ inline TileSums step_tile(const CriticSpan& span, const AdamRule& rule, C51Corner at, TileShare share,
                                            const TileNoise& noise, C51Tile* tile, int P, bool compose, bool apply,
                                            float tau) {
    const C51Places places = c51_places(P);
    TileSums sums = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < SHARE_ELEMENTS; ++j) {
        const int i = threadIdx.x + j * TILE_THREADS;
        if (i >= at.rows * at.pairs * C51_ATOMS) continue;
        const C51Element e = c51_element(i, at);
        const int output = e.output - at.pair0 * C51_ATOMS;
        const bool bias = e.row == TILE_INPUTS;
        const long long at_w = weight_place(e, at, places);
        SpanElement w = share.w[j], sw = share.sw[j];
        const float g = share.g[j], out = noise.output[0][output];
        step_element(span, rule, at_w, &w, g, apply, tau);
        step_element(span, rule, at_w + places.sw, &sw, g * (bias ? out : noise.input[0][e.row] * out), apply, tau);
        if (!bias) {
            sums.gradient = fmaf(g, g, sums.gradient);
            sums.apart = fmaf(w.w - w.target, w.w - w.target, sums.apart);
            sums.weight = fmaf(w.w, w.w, sums.weight);
        }
        if (!compose) continue;
        const float online = noise.output[1][output], target = noise.output[2][output];
        tile->head[0][e.row][e.place] =
            bias ? noisy_bias(w.w, sw.w, online) : noisy_weight(w.w, sw.w, noise.input[1][e.row], online);
        tile->head[1][e.row][e.place] =
            bias ? noisy_bias(w.target, sw.target, target) : noisy_weight(w.target, sw.target, noise.input[2][e.row], target);
    }
    return sums;
}

// The block's sums into three numbers of memory; ends with a barrier behind which the tile is whole. shared [3 * 16].
static __device__ inline void store_sums(TileSums own, float* shared, float* to) {
    const float sums[3] = {warp_sum(own.gradient), warp_sum(own.apart), warp_sum(own.weight)};
    const int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) {
        for (int k = 0; k < 3; ++k) shared[k * warps + threadIdx.x / 32] = sums[k];
    }
    __syncthreads();
    if (threadIdx.x >= 3) return;
    float sum = 0.0f;
    for (int i = 0; i < warps; ++i) sum += shared[threadIdx.x * warps + i];
    to[threadIdx.x] = sum;
}
