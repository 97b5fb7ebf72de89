// What a block of the critic's step does: a tile of the C51 head, elements of the flat vectors, or the batch's priorities.
#pragma once
#include "fused/c51_packed.cuh"
#include "fused/priorities.cuh"
#include "nets/adam.cuh"
#include "nets/polyak.cuh"

#define STEP_ELEMENTS 2048   // of the flat vectors a block
#define TD_ERRORS 3          // NONFINITE_Q of nets/target.py
#define REFUSED 7            // behind the losses' elements of nonfinite_parts: what this iteration's updates met
#define Q_BIAS_RATE 0.05f    // EMA rate per update

// Numbers of a block of rl_c51_path_update, c51_block_parts [blocks, 4].
#define PART_TOP 0       // largest mean target before clipping
#define PART_LOW 1       // least
#define PART_CLIPPED 2   // sum over its rows and pairs of the mass outside the span
#define PART_BAD 3       // how many of its sums are not finite

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

// Sums of a tile: squares of the gradient, of W - W_target and of W, for the norms that are published.
struct TileSums {
    float gradient, apart, weight;
};

// A tile of both C51 heads: gradients from their parts, the step, the target copies, and with next_noises the weights
// under the next update's noise into `tile`.
static __device__ inline TileSums step_tile(const CriticSpan& span, const AdamRule& rule, C51Corner at,
                                            const float* grad_parts, const float* noises, const float* next_noises,
                                            C51Tile* tile, int P, int slices, bool apply, float tau) {
    const C51Places places = c51_places(P);
    const long long input_size = (long long)P * N_ACTIONS * C51_PLACES, slice_size = (HIDDEN_DIM + 1) * input_size;
    TileSums sums = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < at.rows * at.pairs * C51_ATOMS; i += blockDim.x) {
        const C51Element e = c51_element(i, at);
        const bool bias = e.row == TILE_INPUTS;
        const long long at_w = bias ? places.b + e.output : (long long)(at.input0 + e.row) * places.outputs + e.output;
        const long long at_sw = at_w + places.sw;
        SpanElement w = load_element(span, at_w), sw = load_element(span, at_sw);
        const float* part = grad_parts + (at.input0 + e.row) * input_size + at.pair0 * C51_PLACES + e.place;
        float g = 0.0f;
#pragma unroll 8
        for (int s = 0; s < slices; ++s) g += part[s * slice_size];
        const float out = noises[HIDDEN_DIM + e.output], factor = bias ? out : noises[at.input0 + e.row] * out;
        step_element(span, rule, at_w, &w, g, apply, tau);
        step_element(span, rule, at_sw, &sw, g * factor, apply, tau);
        if (!bias) {
            sums.gradient = fmaf(g, g, sums.gradient);
            sums.apart = fmaf(w.w - w.target, w.w - w.target, sums.apart);
            sums.weight = fmaf(w.w, w.w, sums.weight);
        }
        if (next_noises == nullptr) continue;
        tile->head[0][e.row][e.place] = c51_noisy(w.w, sw.w, next_noises, e, at.input0);
        tile->head[1][e.row][e.place] =
            c51_noisy(w.target, sw.target, next_noises + HIDDEN_DIM + places.outputs, e, at.input0);
    }
    return sums;
}

// The batch's TD errors and the slots that tell of its targets: LOSS_Q, Q_TARGET_*, Q_BIAS_EMA. Returns how many TD
// errors are not finite. All threads of the block.
static __device__ inline float tell_of_targets(const float* td_parts, const float* block_parts, const float* row_gap,
                                               float* c51_td, float* isv, float* scratch, int rows, int groups, int blocks,
                                               int learned, int update) {
    float loss = 0.0f, bad = 0.0f, gap = 0.0f, top = -MATH_FLOAT_MAX, low = MATH_FLOAT_MAX, clipped = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        float sum = 0.0f;
        for (int g = 0; g < groups; ++g) sum += td_parts[(long long)g * rows + r];
        const float td = sum / learned;
        c51_td[r] = td;
        loss += td;
        bad += is_finite(td) ? 0.0f : 1.0f;
        gap += row_gap[r];
    }
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        top = max_keep_nan(top, block_parts[4 * i + PART_TOP]);
        low = min_keep_nan(low, block_parts[4 * i + PART_LOW]);
        clipped += block_parts[4 * i + PART_CLIPPED];
    }
    loss = block_sum(loss, scratch) / rows;
    bad = block_sum(bad, scratch);
    gap = block_sum(gap, scratch) / rows;
    top = block_max(top, scratch);
    low = block_min(low, scratch);
    clipped = block_sum(clipped, scratch) / ((float)rows * learned);
    if (threadIdx.x == 0) {
        if (update > 0) {
            top = max_keep_nan(top, isv[ISV_Q_TARGET_MAX]);
            low = min_keep_nan(low, isv[ISV_Q_TARGET_MIN]);
            clipped = ema(isv[ISV_Q_TARGET_CLIP_RATE], clipped, 1.0f / (update + 1));
        }
        isv[ISV_LOSS_Q] = loss;
        isv[ISV_Q_TARGET_MAX] = top;
        isv[ISV_Q_TARGET_MIN] = low;
        isv[ISV_Q_TARGET_CLIP_RATE] = clipped;
        isv[ISV_Q_BIAS_EMA] = isv[ISV_Q_BIAS_EMA] == 0.0f ? gap : ema(isv[ISV_Q_BIAS_EMA], gap, Q_BIAS_RATE);
    }
    return bad;
}
