// A Mamba-2 block between its two projections, backward, in one kernel: norm, gate, scans, step sizes, convolution.
//
// Does what mamba2_norm_backward, mamba2_scan_backward_bc, _x and _dt and mamba2_conv_backward do (nets/mamba2.cu has
// the formulas), bit for bit. x, B, C, dt and decay are computed again from the in-projection instead of being kept.
// A block of threads goes over its row twice. Forward in time: dy and dz, and with the states S the gradient of C.
// Backward in time: the future's gradient of the states, with it those of x, B and dt, then the convolution.
// Sums over a row go to one line of parts: mamba2_sum_parts adds the lines of all rows.
// Bytes a token: 2,200 read, 1,760 written, and what the second pass finds no more in the cache (1,660).
// Shared memory: 26 kB, static.
#include "fused/mamba2_row.cuh"

// What the kernel reads and writes; W counts the snapshots that carry gradient.
struct RowArrays {
    const float *proj, *s, *rstd, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w;
    float *grad, *grad_proj, *grad_c, *parts;
    int W, B;
};

// What the threads of a row share. maps: gradients of C, later of B, one part a head. Of a snapshot and head, towards
// the step size: <dy, x>; the summand of the log decay's gradient; the rest; its factor in a_log's; d dt / d dt_raw.
struct RowShared {
    RowChunk chunk;
    alignas(16) float dy[ROW_CHUNK][ROW_STRIDE], past[ROW_CHUNK][ROW_STRIDE], later[ROW_CHUNK][ROW_STRIDE];
    float maps[ROW_CHUNK][MAMBA_INNER];
    float through[ROW_CHUNK][MAMBA_HEADS], decayed[ROW_CHUNK][MAMBA_HEADS], direct[ROW_CHUNK][MAMBA_HEADS];
    float rated[ROW_CHUNK][MAMBA_HEADS], slope[ROW_CHUNK][MAMBA_HEADS];
    float norm_w[MAMBA_INNER], mean[ROW_CHUNK];
};

typedef ScanTile<ROW_PER_THREAD> RowTile;

static __device__ inline long long row_token(const RowArrays& a, int w) {
    return (long long)w * a.B + (int)blockIdx.x;
}

// Gradient of C: the head's 16 channels x two states a thread, forward in time.
static __device__ inline void scan_for_c(RowTile* state, RowShared* row, int n, int thread) {
    const int c = thread * ROW_PER_THREAD, head = c / MAMBA_STATE, first = head * MAMBA_HEAD_DIM;
    for (int i = 0; i < n; ++i) {
        scan_step<false>(state, row->chunk.decay[i][head], row->chunk.dt[i][head], &row->chunk.x[i][first],
                         &row->chunk.bc[i][c % MAMBA_STATE], &row->dy[i][first], 1.0f, &row->maps[i][c]);
    }
}

// Gradient of B: as above, backward in time. after: decay of the following snapshot.
static __device__ inline void scan_for_b(RowTile* state, RowShared* row, float* after, int n, int thread) {
    const int c = thread * ROW_PER_THREAD, head = c / MAMBA_STATE, first = head * MAMBA_HEAD_DIM;
    for (int i = n - 1; i >= 0; --i) {
        scan_step<false>(state, *after, 1.0f, &row->dy[i][first], &row->chunk.bc[i][MAMBA_STATE + c % MAMBA_STATE],
                         &row->chunk.x[i][first], row->chunk.dt[i][head], &row->maps[i][c]);
        *after = row->chunk.decay[i][head];
    }
}

// What the future wants of dt x: two channels a thread, backward in time.
static __device__ inline void scan_for_x(RowTile* state, RowShared* row, float* after, int n, int thread) {
    const int c = thread * ROW_PER_THREAD, head = c / MAMBA_HEAD_DIM;
    for (int i = n - 1; i >= 0; --i) {
        scan_step<true>(state, *after, 1.0f, row->chunk.bc[i] + MAMBA_STATE, &row->dy[i][c], row->chunk.bc[i], 1.0f,
                        &row->later[i][c]);
        *after = row->chunk.decay[i][head];
    }
}

// dy and dz of a chunk; returns the channel's part of the norm weights' gradient. Four barriers.
static __device__ inline float norm_chunk(const RowArrays& a, RowShared* row, int first, int n, int t) {
    const bool channel = t < MAMBA_INNER;
    const int head = t / MAMBA_HEAD_DIM;
    float z[ROW_CHUNK], d[ROW_CHUNK], y[ROW_CHUNK], r[ROW_CHUNK], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; ++i) {
        const long long token = row_token(a, first + (i < n ? i : 0));
        z[i] = channel ? a.proj[token * MAMBA_PROJ + t] : 0.0f;
        d[i] = channel ? a.grad[token * MAMBA_INNER + t] : 0.0f;
        y[i] = channel ? a.s[token * MAMBA_INNER + t] : 0.0f;
        r[i] = a.rstd[token];
    }
    __syncthreads();
    if (!channel && t - MAMBA_INNER < n) row_own(&row->chunk, t - MAMBA_INNER);
    __syncthreads();
    if (channel) {
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; ++i) {
            if (i >= n) continue;
            const float through = fmaf(row->chunk.dt[i][head], row->chunk.own[i], a.skip[head]);
            y[i] = fmaf(through, row->chunk.x[i][t], y[i]);
            const float part = y[i] * (z[i] * lanes_sigmoid(z[i]) * r[i] * d[i]);
            row->dy[i][t] = part;
            sum += part;
        }
    }
    __syncthreads();
    if (t < ROW_CHUNK * MAMBA_LANES) {
        const float weighted = row_sum<false>(row->dy, row->norm_w, t / MAMBA_LANES, t % MAMBA_LANES);
        row->mean[t / MAMBA_LANES] = weighted / MAMBA_INNER;
    }
    __syncthreads();
    if (channel) {
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; ++i) {
            if (i >= n) continue;
            const long long token = row_token(a, first + i);
            const float gate = lanes_sigmoid(z[i]), swish = z[i] * gate;
            const float du = r[i] * fmaf(-y[i] * swish * r[i], row->mean[i], row->norm_w[t] * d[i]);
            row->dy[i][t] = a.grad[token * MAMBA_INNER + t] = du * swish;
            a.grad_proj[token * MAMBA_PROJ + t] = du * y[i] * gate * fmaf(z[i], 1.0f - gate, 1.0f);
        }
    }
    return sum;
}

// First pass, forward in time.
static __device__ __forceinline__ void pass_forward(const RowArrays& a, RowShared* row, RowColumn* column, int t) {
    float norm_sum = 0.0f;
    RowTile state;
    scan_clear(&state);
    for (int k = 0; k < ROW_BEFORE; ++k) column->in[ROW_CHUNK + k] = 0.0f;
    for (int first = 0; first < a.W; first += ROW_CHUNK) {
        const int n = a.W - first < ROW_CHUNK ? a.W - first : ROW_CHUNK;
#pragma unroll
        for (int k = 0; k < ROW_BEFORE; ++k) column->in[k] = column->in[ROW_CHUNK + k];
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; ++i) {
            column->in[ROW_BEFORE + i] = row_input(a.proj, first + i, a.W, (int)blockIdx.x, a.B, t);
        }
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; ++i) {
            *row_convolved(&row->chunk, i, t) = lanes_silu(row_convolution(*column, i));
        }
        row_steps(&row->chunk, a.proj, a.dt_bias, a.a_log, first, n, (int)blockIdx.x, a.B, t);
        norm_sum += norm_chunk(a, row, first, n, t);
        __syncthreads();
        if (t < ROW_SCANNERS) scan_for_c(&state, row, n, t);
        __syncthreads();
        const int i = t / MAMBA_STATE, state_column = t % MAMBA_STATE;
        if (i < n) {
            float sum = 0.0f;
            for (int head = 0; head < MAMBA_HEADS; ++head) sum += row->maps[i][head * MAMBA_STATE + state_column];
            a.grad_c[row_token(a, first + i) * MAMBA_STATE + state_column] = sum;
        }
    }
    if (t < MAMBA_INNER) a.parts[(long long)blockIdx.x * ROW_PARTS + ROW_PART_NORM + t] = norm_sum;
}

// Terms of the step sizes' gradient that need no other snapshot: one thread a head of a snapshot.
static __device__ inline void step_terms(const RowArrays& a, RowShared* row, int i, int head) {
    const int c = head * MAMBA_HEAD_DIM;
    const float step = row->chunk.dt[i][head];
    const float later = mamba_dot16(&row->chunk.x[i][c], &row->later[i][c]);
    const float through = mamba_dot16(&row->dy[i][c], &row->chunk.x[i][c]);
    row->through[i][head] = through;
    row->decayed[i][head] = mamba_dot16(&row->dy[i][c], &row->past[i][c]) - step * later;
    row->direct[i][head] = fmaf(row->chunk.own[i], through, later);
    row->rated[i][head] = -expf(a.a_log[head]) * step;
    row->slope[i][head] = -expm1f(-step);
}

// Running sums over the snapshots that follow; sums: of the log decay's gradient, of a_log's, the skip's, dt_bias'.
static __device__ inline void step_gradients(const RowArrays& a, const RowShared* row, float* sums, int first, int n,
                                             int head) {
    const float rate = expf(a.a_log[head]);
    for (int i = n - 1; i >= 0; --i) {
        sums[0] += row->decayed[i][head];
        sums[1] = fmaf(sums[0], row->rated[i][head], sums[1]);
        sums[2] += row->through[i][head];
        const float grad = fmaf(-rate, sums[0], row->direct[i][head]) * row->slope[i][head];
        sums[3] += grad;
        a.grad_proj[row_token(a, first + i) * MAMBA_PROJ + MAMBA_DT_COLUMN + head] = grad;
    }
}

// Gradient of column t after SiLU at snapshot i. own: dy of a channel, the gradient of a column of C.
static __device__ inline float output_gradient(const RowShared* row, float skip, float own, int i, int t) {
    if (t < MAMBA_INNER) {
        const float step = row->chunk.dt[i][t / MAMBA_HEAD_DIM];
        return fmaf(step, row->later[i][t], fmaf(step, row->chunk.own[i], skip) * own);
    }
    if (t >= MAMBA_C_COLUMN) return own;
    float sum = 0.0f;
    for (int head = 0; head < MAMBA_HEADS; ++head) sum += row->maps[i][head * MAMBA_STATE + t - MAMBA_INNER];
    return sum;
}

// A column's convolution backward in time: the last four gradients before SiLU, and the row's parts of taps and bias.
struct ConvGradient {
    float ahead[MAMBA_TAPS], taps[MAMBA_TAPS], bias;
};

// One snapshot back; returns the gradient of the column's input. grad: of the convolution's output, before SiLU.
static __device__ inline float conv_step(ConvGradient* g, const RowColumn& column, int i, float grad) {
#pragma unroll
    for (int k = MAMBA_TAPS - 1; k > 0; --k) g->ahead[k] = g->ahead[k - 1];
    g->ahead[0] = grad;
    g->bias += grad;
    float out = 0.0f;
#pragma unroll
    for (int k = 0; k < MAMBA_TAPS; ++k) {
        g->taps[k] = fmaf(grad, column.in[i + k], g->taps[k]);
        out = fmaf(column.taps[MAMBA_TAPS - 1 - k], g->ahead[k], out);
    }
    return out;
}

// Loads a chunk of the second pass, convolves again; slope: SiLU's. own: see output_gradient. No barrier.
static __device__ inline void load_back(const RowArrays& a, RowShared* row, RowColumn* column, float* slope,
                                        float* own, int first, int n, int t) {
    const bool channel = t < MAMBA_INNER;
#pragma unroll
    for (int k = 0; k < ROW_BEFORE; ++k) column->in[ROW_CHUNK + k] = column->in[k];
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; ++i) {
        const long long token = row_token(a, first + (i < n ? i : 0));
        column->in[i] = row_input(a.proj, first - ROW_BEFORE + i, a.W, (int)blockIdx.x, a.B, t);
        own[i] = channel               ? a.grad[token * MAMBA_INNER + t]
                 : t >= MAMBA_C_COLUMN ? a.grad_c[token * MAMBA_STATE + t - MAMBA_C_COLUMN]
                                       : 0.0f;
        if (channel) row->past[i][t] = a.s[token * MAMBA_INNER + t];
    }
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; ++i) {
        const float v = row_convolution(*column, i), gate = lanes_sigmoid(v);
        *row_convolved(&row->chunk, i, t) = v * gate;
        slope[i] = gate * fmaf(v, 1.0f - gate, 1.0f);
        if (channel) row->dy[i][t] = own[i];
    }
    row_steps(&row->chunk, a.proj, a.dt_bias, a.a_log, first, n, (int)blockIdx.x, a.B, t);
}

// Second pass, backward in time.
static __device__ __forceinline__ void pass_backward(const RowArrays& a, RowShared* row, RowColumn* column, int t) {
    const int last = (a.W - 1) / ROW_CHUNK * ROW_CHUNK;
    const float skip = t < MAMBA_INNER ? a.skip[t / MAMBA_HEAD_DIM] : 0.0f;
    float after = 0.0f, sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    RowTile state;
    scan_clear(&state);
    ConvGradient g = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
#pragma unroll
    for (int k = 0; k < ROW_BEFORE; ++k) {
        column->in[k] = row_input(a.proj, last + ROW_CHUNK - ROW_BEFORE + k, a.W, (int)blockIdx.x, a.B, t);
    }
    for (int first = last; first >= 0; first -= ROW_CHUNK) {
        const int n = a.W - first < ROW_CHUNK ? a.W - first : ROW_CHUNK;
        float slope[ROW_CHUNK], own[ROW_CHUNK];
        load_back(a, row, column, slope, own, first, n, t);
        __syncthreads();
        if (t < ROW_SCANNERS) scan_for_x(&state, row, &after, n, t);
        else if (t < MAMBA_INNER) scan_for_b(&state, row, &after, n, t - ROW_SCANNERS);
        else if (t - MAMBA_INNER < n) row_own(&row->chunk, t - MAMBA_INNER);
        __syncthreads();
        if (t % ROW_CHUNK < n && t < ROW_CHUNK * MAMBA_HEADS) step_terms(a, row, t % ROW_CHUNK, t / ROW_CHUNK);
#pragma unroll
        for (int i = ROW_CHUNK - 1; i >= 0; --i) {
            if (i >= n) continue;
            const float grad = conv_step(&g, *column, i, output_gradient(row, skip, own[i], i, t) * slope[i]);
            a.grad_proj[row_token(a, first + i) * MAMBA_PROJ + MAMBA_XBC_COLUMN + t] = grad;
        }
        __syncthreads();
        if (t >= MAMBA_INNER && t - MAMBA_INNER < MAMBA_HEADS) step_gradients(a, row, sums, first, n, t - MAMBA_INNER);
    }
    float* parts = a.parts + (long long)blockIdx.x * ROW_PARTS;
    for (int k = 0; k < MAMBA_TAPS; ++k) parts[k * MAMBA_XBC + t] = g.taps[k];
    parts[ROW_PART_BIAS + t] = g.bias;
    if (t >= MAMBA_INNER && t - MAMBA_INNER < MAMBA_HEADS) {
        const int head = t - MAMBA_INNER;
        parts[ROW_PART_A_LOG + head] = sums[1];
        parts[ROW_PART_SKIP + head] = sums[2];
        parts[ROW_PART_DT + head] = sums[3];
    }
}

// mamba2_row_backward: from the gradient of the normalised output to that of the in-projection.
// launch: blocks B, block 160
// updates: grad
// fuses: mamba2_norm_backward, mamba2_scan_backward_bc, mamba2_scan_backward_x, mamba2_scan_backward_dt, mamba2_conv_backward
// One block a row. proj, grad_proj [W, B, 296]; s, grad [W, B, 128]: dL/dnorm, becomes dL/dy; rstd [W, B];
// conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128]; grad_c [W, B, 16]: of C after SiLU;
// parts [B, 952]: taps [4, 160], their bias, dt_bias, a_log, skip [8], norm_w [128], summed over the row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS, 3) mamba2_row_backward(
    const float* __restrict__ proj, const float* __restrict__ s, const float* __restrict__ rstd,
    const float* __restrict__ conv_w, const float* __restrict__ conv_b, const float* __restrict__ dt_bias,
    const float* __restrict__ a_log, const float* __restrict__ skip, const float* __restrict__ norm_w,
    float* __restrict__ grad, float* __restrict__ grad_proj, float* __restrict__ grad_c, float* __restrict__ parts,
    int W, int B) {
    __shared__ RowShared row;
    const RowArrays a = {proj, s,    rstd,      conv_w, conv_b, dt_bias, a_log, skip,
                         norm_w, grad, grad_proj, grad_c, parts,  W,       B};
    const int t = (int)threadIdx.x;
    if (t < MAMBA_INNER) row.norm_w[t] = norm_w[t];
    RowColumn column;
    row_taps(&column, conv_w, conv_b, t);
    pass_forward(a, &row, &column, t);
    __syncthreads();
    pass_backward(a, &row, &column, t);
}
