// First pass of the fused backward, forward in time: dy and dz, and with the states S the gradient of C.
//
// A chunk goes through four stages: convolution and step sizes; norm and gate; the scan; the sum over the heads.
#pragma once
#include "fused/mamba2_backward.cuh"

// What the kernel reads and writes; W counts the snapshots that carry gradient.
struct FirstArrays {
    const float *proj, *s, *rstd, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w;
    float *grad, *grad_proj, *grad_c, *parts;
    int W, B;
};

// parts: of the norm weights' gradient. maps: gradient of C, one part a head.
struct FirstShared {
    RowTile tile[ROW_RING];
    alignas(16) float dy[2][ROW_CHUNK][BACK_STRIDE];
    float parts[2][ROW_CHUNK][BACK_STRIDE], maps[2][ROW_CHUNK][MAMBA_INNER];
    float skip[MAMBA_HEADS], norm_w[MAMBA_INNER];
};

// Stage k convolves column c of chunk k, adds the norm weights' gradients of chunk k - 2, and sums the gradient of C of
// chunk k - 3 over the heads.
static __device__ __forceinline__ void first_convolve(const FirstArrays& a, FirstShared* row, int c) {
    const int i = c / MAMBA_STATE, state = c % MAMBA_STATE;
    float norm_sum = 0.0f;
    const RowTaps taps = row_taps(a.conv_w, a.conv_b, c);
    RowInputs inputs;
    row_load_first(&inputs, a.proj, a.W, a.B, c);
    for (int stage = 0; stage < BACK_STAGES(a.W); ++stage) {
        if (row_span(stage, a.W).n) {
            row_convolve(&row->tile[stage % ROW_RING], taps, inputs, a.dt_bias, a.a_log, c);
            row_load_next(&inputs, a.proj, row_span(stage + 1, a.W), a.B, c);
        }
        const int normed = row_span(stage - 2, a.W).n;
        for (int k = 0; k < normed && c < MAMBA_INNER; ++k) norm_sum += row->parts[(stage + 1) & 1][k][c];
        const RowSpan done = row_span(stage - 3, a.W);
        if (i < done.n) {
            const float sum = sum_heads(row->maps[(stage + 1) & 1][i], state);
            a.grad_c[row_at(done.first + i, a.B, MAMBA_STATE) + state] = sum;
        }
        row_barrier();
    }
    if (c < MAMBA_INNER) a.parts[(long long)blockIdx.x * ROW_PARTS + ROW_PART_NORM + c] = norm_sum;
}

// Of sixteen threads that share snapshot i, the one of channels half 64 + l, half 64 + l + 8, ...: what it loads of a
// chunk.
struct NormThread {
    int i, half, l;
    float z[BACK_CHANNELS], d[BACK_CHANNELS], y[BACK_CHANNELS], r;

    __device__ inline int channel(int j) const { return half * (MAMBA_INNER / 2) + j * MAMBA_LANES + l; }
};

static __device__ inline void norm_load(NormThread* at, const FirstArrays& a, RowSpan span) {
    if (at->i >= span.n) return;
    const float* z = a.proj + row_at(span.first + at->i, a.B, MAMBA_PROJ) + at->channel(0);
    const long long place = row_at(span.first + at->i, a.B, MAMBA_INNER) + at->channel(0);
#pragma unroll
    for (int j = 0; j < BACK_CHANNELS; ++j) {
        at->z[j] = z[j * MAMBA_LANES];
        at->d[j] = a.grad[place + j * MAMBA_LANES];
        at->y[j] = a.s[place + j * MAMBA_LANES];
    }
    at->r = a.rstd[row_at(span.first + at->i, a.B, 1)];
}

// Mean of weight * part over the 128 channels in eight partial sums: the second half goes on where the first one ends.
// part, weight: the thread's first channel, the others follow in steps of eight.
static __device__ inline float norm_mean(const float* part, const float* weight, int half) {
    float sum = 0.0f;
#pragma unroll 4
    for (int j = 0; j < BACK_CHANNELS; ++j) sum = fmaf(part[j * MAMBA_LANES], weight[j * MAMBA_LANES], sum);
    float whole = __shfl_xor_sync(REDUCE_FULL_WARP, sum, MAMBA_LANES);
#pragma unroll 4
    for (int j = 0; j < BACK_CHANNELS; ++j) whole = fmaf(part[j * MAMBA_LANES], weight[j * MAMBA_LANES], whole);
    const float other = __shfl_xor_sync(REDUCE_FULL_WARP, whole, MAMBA_LANES);
    return group_sum<MAMBA_LANES>(half ? whole : other) / MAMBA_INNER;
}

// dy, dz and parts, the norm weights' gradient, of the thread's snapshot and channels.
static __device__ inline void norm_chunk(NormThread* at, const FirstArrays& a, const FirstShared& row,
                                         const RowTile& tile, float* dy, float* parts, RowSpan span) {
    const float own = row_own(tile.xbc[at->i], at->l);
    const bool inside = at->i < span.n;
    float gate[BACK_CHANNELS];
#pragma unroll
    for (int j = 0; j < BACK_CHANNELS; ++j) {
        const int c = at->channel(j), head = c / MAMBA_HEAD_DIM;
        const float through = fmaf(tile.step[at->i][head].dt, own, row.skip[head]);
        at->y[j] = fmaf(through, tile.xbc[at->i][c], at->y[j]);
        gate[j] = lanes_sigmoid(at->z[j]);
        parts[c] = at->y[j] * (at->z[j] * gate[j] * at->r * at->d[j]);
    }
    const float mean = norm_mean(parts + at->channel(0), row.norm_w + at->channel(0), at->half);
    if (!inside) return;
    float* dz = a.grad_proj + row_at(span.first + at->i, a.B, MAMBA_PROJ);
    float* to = a.grad + row_at(span.first + at->i, a.B, MAMBA_INNER);
#pragma unroll
    for (int j = 0; j < BACK_CHANNELS; ++j) {
        const int c = at->channel(j);
        const float z = at->z[j], y = at->y[j], swish = z * gate[j];
        const float du = at->r * fmaf(-y * swish * at->r, mean, row.norm_w[c] * at->d[j]);
        dy[c] = to[c] = du * swish;
        dz[c] = du * y * gate[j] * fmaf(z, 1.0f - gate[j], 1.0f);
    }
}

// Stage k takes chunk k - 1 through norm and gate.
static __device__ __forceinline__ void first_norm(const FirstArrays& a, FirstShared* row, int thread) {
    NormThread at;
    at.i = thread / 16, at.half = thread / MAMBA_LANES % 2, at.l = thread % MAMBA_LANES;
    for (int stage = 0; stage < BACK_STAGES(a.W); ++stage) {
        const int place = (stage + ROW_RING - 1) % ROW_RING;
        const RowSpan span = row_span(stage - 1, a.W);
        float *dy = row->dy[stage & 1][at.i], *parts = row->parts[stage & 1][at.i];
        if (span.n) norm_chunk(&at, a, *row, row->tile[place], dy, parts, span);
        norm_load(&at, a, row_span(stage, a.W));
        row_barrier();
    }
}

// Stage k scans chunk k - 2: the head's 16 channels x two states a thread.
static __device__ __forceinline__ void first_scan(const FirstArrays& a, FirstShared* row, int thread) {
    const int c = thread * BACK_PER_THREAD, head = c / MAMBA_STATE, first = head * MAMBA_HEAD_DIM;
    BackTile states;
    scan_clear(&states);
    for (int stage = 0; stage < BACK_STAGES(a.W); ++stage) {
        const int place = (stage + ROW_RING - 2) % ROW_RING, n = row_span(stage - 2, a.W).n;
        const RowTile& tile = row->tile[place];
        for (int i = 0; i < n; ++i) {
            row_scan<false>(&states, tile.step[i][head].decay, tile.step[i][head].dt, &tile.xbc[i][first],
                            &tile.xbc[i][MAMBA_B_COLUMN + c % MAMBA_STATE], &row->dy[(stage + 1) & 1][i][first], 1.0f,
                            &row->maps[stage & 1][i][c]);
        }
        row_barrier();
    }
}

static __device__ __forceinline__ void first_pass(const FirstArrays& a, FirstShared* row, int t) {
    const int norm = t - MAMBA_XBC, scanner = norm - BACK_NORMS;
    if (t < MAMBA_INNER) row->norm_w[t] = a.norm_w[t];
    if (t < MAMBA_HEADS) row->skip[t] = a.skip[t];
    if (norm < 0) first_convolve(a, row, t);
    else if (scanner < 0) first_norm(a, row, norm);
    else first_scan(a, row, scanner);
}
