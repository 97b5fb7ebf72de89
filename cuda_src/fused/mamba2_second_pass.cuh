// Second pass of the fused backward, backward in time: with the future's gradient of the states those of x, B and the
// step sizes, then the convolution's. Chunk q of this pass is number q from the window's end.
//
// A chunk goes through four stages: convolution and step sizes again; the two scans; the convolution backward, and the
// terms of the step sizes' gradients; their running sums.
#pragma once
#include "fused/mamba2_backward.cuh"

// What the kernel reads and writes; W counts the snapshots that carry gradient.
struct SecondArrays {
    const float *proj, *s, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *grad_y, *grad_c;
    float *grad_proj, *parts;
    int W, B;
};

// Of a head of a snapshot, towards the gradient of its step size.
struct StepTerms {
    float skip;     // <dy, x>
    float decayed;  // summand of the log decay's gradient
    float direct;   // what does not go through the decay
    float rated;    // -exp(a_log) dt
    float slope;    // d dt / d dt_raw
};

// later: what the future wants of dt x. maps: gradient of B, one part a head. own: B C of a snapshot.
struct SecondShared {
    RowTile tile[ROW_RING];
    alignas(16) float dy[ROW_RING][ROW_CHUNK][BACK_STRIDE];
    alignas(16) float later[2][ROW_CHUNK][BACK_STRIDE];
    float maps[2][ROW_CHUNK][MAMBA_INNER];
    StepTerms terms[2][ROW_CHUNK][MAMBA_HEADS];
    float own[ROW_RING][ROW_CHUNK], skip[MAMBA_HEADS];
};

static __device__ inline RowSpan span_from_end(int q, int W) {
    const int chunks = row_chunks(W);
    return row_span(q < 0 || q >= chunks ? -1 : chunks - 1 - q, W);
}

// Loads the inputs of a column in a chunk and before it, and of the thread's step size; 0 outside the window.
static __device__ inline void load_inputs(RowInputs* inputs, const SecondArrays& a, RowSpan span, int c) {
    const float* from = a.proj + row_at(span.first, a.B, MAMBA_PROJ);
    const int next = a.B * MAMBA_PROJ, column = MAMBA_XBC_COLUMN + c;
#pragma unroll
    for (int k = 0; k < ROW_BEFORE + ROW_CHUNK; ++k) {
        const int i = k - ROW_BEFORE;
        inputs->in[k] = i < span.n && span.first + i >= 0 ? from[i * next + column] : 0.0f;
    }
    if (c < ROW_LANES && c / MAMBA_HEADS < span.n) {
        inputs->dt_raw = from[c / MAMBA_HEADS * next + MAMBA_DT_COLUMN + c % MAMBA_HEADS];
    }
}

// Loads dy of channel c or, behind the channels, the gradient of a column of C.
static __device__ inline void load_first_pass(float* dy, const SecondArrays& a, RowSpan span, int c) {
    const bool channel = c < MAMBA_INNER;
    const int width = channel ? MAMBA_INNER : MAMBA_STATE;
    const float* from = (channel ? a.grad_y + c : a.grad_c + c - MAMBA_INNER) + row_at(span.first, a.B, width);
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; ++i) {
        if (i < span.n && c < MAMBA_INNER + MAMBA_STATE) dy[i] = from[i * a.B * width];
    }
}

// What the future wants of dt x in a chunk: two channels c, c + 1 a thread. after: decay of the following snapshot.
static __device__ inline void scan_for_x(BackTile* states, float* after, const RowTile& tile,
                                         const float (*dy)[BACK_STRIDE], float (*later)[BACK_STRIDE], int n, int c) {
    for (int i = n - 1; i >= 0; --i) {
        row_scan<true>(states, *after, 1.0f, tile.xbc[i] + MAMBA_C_COLUMN, &dy[i][c], tile.xbc[i] + MAMBA_B_COLUMN,
                       1.0f, &later[i][c]);
        *after = tile.step[i][c / MAMBA_HEAD_DIM].decay;
    }
}

// Gradient of B in a chunk, one part a head: the head's 16 channels x two states c, c + 1 a thread.
static __device__ inline void scan_for_b(BackTile* states, float* after, const RowTile& tile,
                                         const float (*dy)[BACK_STRIDE], float (*maps)[MAMBA_INNER], int n, int c) {
    const int head = c / MAMBA_STATE, first = head * MAMBA_HEAD_DIM;
    for (int i = n - 1; i >= 0; --i) {
        row_scan<false>(states, *after, 1.0f, &dy[i][first], &tile.xbc[i][MAMBA_C_COLUMN + c % MAMBA_STATE],
                        &tile.xbc[i][first], tile.step[i][head].dt, &maps[i][c]);
        *after = tile.step[i][head].decay;
    }
}

// Stage k scans chunk k - 1: half of the threads for x, the other half for B.
static __device__ __forceinline__ void second_scan(const SecondArrays& a, SecondShared* row, int thread) {
    const int c = thread % BACK_SCANNERS * BACK_PER_THREAD;
    BackTile states;
    scan_clear(&states);
    float after = 0.0f;
    for (int stage = 0; stage < BACK_STAGES(a.W); ++stage) {
        const int place = (stage + ROW_RING - 1) % ROW_RING, side = stage & 1, n = span_from_end(stage - 1, a.W).n;
        const RowTile& tile = row->tile[place];
        if (thread < BACK_SCANNERS) scan_for_x(&states, &after, tile, row->dy[place], row->later[side], n, c);
        else scan_for_b(&states, &after, tile, row->dy[place], row->maps[side], n, c);
        row_barrier();
    }
}

// Gradient of column c after SiLU at snapshot i of the chunk in place `ring`; side: which of later and maps.
static __device__ inline float output_gradient(const SecondShared& row, int ring, int side, int i, int c) {
    if (c < MAMBA_INNER) {
        const int head = c / MAMBA_HEAD_DIM;
        const float step = row.tile[ring].step[i][head].dt;
        const float through = fmaf(step, row.own[ring][i], row.skip[head]);
        return fmaf(step, row.later[side][i][c], through * row.dy[ring][i][c]);
    }
    if (c >= MAMBA_C_COLUMN) return row.dy[ring][i][c - MAMBA_STATE];
    return sum_heads(row.maps[side][i], c - MAMBA_B_COLUMN);
}

// Backward of a column's convolution: the last four gradients before SiLU, the row's parts of taps and bias.
struct ConvGradient {
    float ahead[MAMBA_TAPS], taps[MAMBA_TAPS], bias;
};

// Column c of a chunk back through SiLU and convolution. ring, side: see output_gradient.
static __device__ inline void convolution_gradient(ConvGradient* g, const RowTaps& taps, const SecondArrays& a,
                                                   const SecondShared& row, int ring, int side, RowSpan span, int c) {
    float* to = a.grad_proj + row_at(span.first, a.B, MAMBA_PROJ) + MAMBA_XBC_COLUMN + c;
    RowInputs inputs;  // loaded two stages ago already: near
    load_inputs(&inputs, a, span, c);
#pragma unroll
    for (int i = ROW_CHUNK - 1; i >= 0; --i) {
        if (i >= span.n) continue;
        const float slope = lanes_silu_slope(row_convolution(taps, inputs, i));
        const float grad = output_gradient(row, ring, side, i, c) * slope;
        float out = 0.0f;
#pragma unroll
        for (int k = MAMBA_TAPS - 1; k > 0; --k) g->ahead[k] = g->ahead[k - 1];
        g->ahead[0] = grad;
        g->bias += grad;
#pragma unroll
        for (int k = 0; k < MAMBA_TAPS; ++k) {
            g->taps[k] = fmaf(grad, inputs.in[i + k], g->taps[k]);
            out = fmaf(taps.tap[MAMBA_TAPS - 1 - k], g->ahead[k], out);
        }
        to[i * a.B * MAMBA_PROJ] = out;
    }
}

// Stage k convolves column c of chunk k again, lays dy and dC beside it, and takes chunk k - 2 back.
static __device__ __forceinline__ void second_convolve(const SecondArrays& a, SecondShared* row, int c) {
    const RowTaps taps = row_taps(a.conv_w, a.conv_b, c);
    RowInputs inputs;
    ConvGradient g = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
    load_inputs(&inputs, a, span_from_end(0, a.W), c);
    for (int stage = 0; stage < BACK_STAGES(a.W); ++stage) {
        const RowSpan span = span_from_end(stage, a.W);
        if (span.n) {
            float dy[ROW_CHUNK];
            load_first_pass(dy, a, span, c);
            row_convolve(&row->tile[stage % ROW_RING], taps, inputs, a.dt_bias, a.a_log, c);
            load_inputs(&inputs, a, span_from_end(stage + 1, a.W), c);
#pragma unroll
            for (int i = 0; i < ROW_CHUNK; ++i) {
                if (c < MAMBA_INNER + MAMBA_STATE) row->dy[stage % ROW_RING][i][c] = dy[i];
            }
        }
        const RowSpan back = span_from_end(stage - 2, a.W);
        if (back.n) convolution_gradient(&g, taps, a, *row, (stage + 1) % ROW_RING, (stage + 1) & 1, back, c);
        row_barrier();
    }
    float* parts = a.parts + (long long)blockIdx.x * ROW_PARTS;
    for (int k = 0; k < MAMBA_TAPS; ++k) parts[k * MAMBA_XBC + c] = g.taps[k];
    parts[ROW_PART_BIAS + c] = g.bias;
}

// What the step size of a head of snapshot i needs of this snapshot alone. s: the head's channels.
static __device__ inline StepTerms step_terms(const RowTile& tile, const float* dy, const float* later, const float* s,
                                              float own, float a_log, int i, int head) {
    const int c = head * MAMBA_HEAD_DIM;
    const float step = tile.step[i][head].dt, past = mamba_dot16(dy + c, s);
    const float flow = mamba_dot16(&tile.xbc[i][c], later + c), through = mamba_dot16(dy + c, &tile.xbc[i][c]);
    return {through, past - step * flow, fmaf(own, through, flow), -expf(a_log) * step, -expm1f(-step)};
}

// Sums over the snapshots that follow, of a head: of the gradient of the log decay, of a_log's, the skip's, dt_bias'.
struct StepSums {
    float log_decay, a_log, skip, dt_bias;
};

// Gradients of a head's step sizes in a chunk.
static __device__ inline void step_gradients(StepSums* sums, const StepTerms (*terms)[MAMBA_HEADS],
                                             const SecondArrays& a, RowSpan span, float rate, int head) {
    for (int i = span.n - 1; i >= 0; --i) {
        const StepTerms& at = terms[i][head];
        sums->log_decay += at.decayed;
        sums->a_log = fmaf(sums->log_decay, at.rated, sums->a_log);
        sums->skip += at.skip;
        const float grad = fmaf(-rate, sums->log_decay, at.direct) * at.slope;
        sums->dt_bias += grad;
        a.grad_proj[row_at(span.first + i, a.B, MAMBA_PROJ) + MAMBA_DT_COLUMN + head] = grad;
    }
}

// The step sizes. Stage k: B C of chunk k - 1, eight threads a snapshot; terms of chunk k - 2, a thread a head of a
// snapshot; running sums of chunk k - 3, a thread a head.
static __device__ __forceinline__ void second_steps(const SecondArrays& a, SecondShared* row, int thread) {
    const int i = thread % ROW_CHUNK, head = thread / ROW_CHUNK, lane = thread % MAMBA_LANES;
    const float a_log = a.a_log[head], rate = expf(a.a_log[lane]);
    StepSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int stage = 0; stage < BACK_STAGES(a.W); ++stage) {
        const int before = (stage + 2) % ROW_RING, last = (stage + 1) % ROW_RING, side = (stage + 1) & 1;
        if (thread < MAMBA_HEADS) step_gradients(&sums, row->terms[side], a, span_from_end(stage - 3, a.W), rate, lane);
        const float own = row_own(row->tile[before].xbc[thread / MAMBA_LANES], lane);
        if (lane == 0) row->own[before][thread / MAMBA_LANES] = own;
        const RowSpan span = span_from_end(stage - 2, a.W);
        if (i < span.n) {
            const float* s = a.s + row_at(span.first + i, a.B, MAMBA_INNER) + head * MAMBA_HEAD_DIM;
            row->terms[stage & 1][i][head] = step_terms(row->tile[last], row->dy[last][i], row->later[side][i], s,
                                                        row->own[last][i], a_log, i, head);
        }
        row_barrier();
    }
    if (thread >= MAMBA_HEADS) return;
    float* parts = a.parts + (long long)blockIdx.x * ROW_PARTS + thread;
    parts[ROW_PART_A_LOG] = sums.a_log, parts[ROW_PART_SKIP] = sums.skip, parts[ROW_PART_DT] = sums.dt_bias;
}

static __device__ __forceinline__ void second_pass(const SecondArrays& a, SecondShared* row, int t) {
    const int scanner = t - MAMBA_XBC, stepper = scanner - 2 * BACK_SCANNERS;
    if (t < MAMBA_HEADS) row->skip[t] = a.skip[t];
    if (scanner < 0) second_convolve(a, row, t);
    else if (stepper < 0) second_scan(a, row, scanner);
    else second_steps(a, row, stepper);
}
