// A Mamba-2 block backward, through the same steps in the opposite order (mamba2.cuh has the formulas).
#include "nets/mamba2.cuh"

// mamba2_norm_backward: from the gradient of the normalised output to those of s and z.
// launch: threads W*B, block 64
// updates: norm, grad
// One thread a token. grad [W, B, 128]: dL/dnorm, becomes dL/dy. norm [W, B, 128] has had its last use and
// becomes the token's part of dL/dnorm_w. grad_proj [W, B, 296]: columns of z are written.
//   v = u rstd;  du = rstd (norm_w dnorm - v mean(v norm_w dnorm));  dy = du SiLU(z);  dz = du y SiLU'(z)
extern "C" __global__ void mamba2_norm_backward(const float* __restrict__ s, const float* __restrict__ xbc,
                                                const float* __restrict__ proj, const float* __restrict__ dt,
                                                const float* __restrict__ skip, const float* __restrict__ norm_w,
                                                const float* __restrict__ rstd, float* __restrict__ norm,
                                                float* __restrict__ grad, float* __restrict__ grad_proj, int W,
                                                int B) {
    const long long token = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= (long long)W * B) return;
    const float* past = s + token * MAMBA_INNER;
    const float* x = xbc + token * MAMBA_XBC;
    const float own = mamba_own(x);
    const float* z = proj + token * MAMBA_PROJ;
    float* part = norm + token * MAMBA_INNER;
    float* d = grad + token * MAMBA_INNER;
    float* dz = grad_proj + token * MAMBA_PROJ;
    const float r = rstd[token];
    float lane[MAMBA_LANES];
    for (int l = 0; l < MAMBA_LANES; ++l) lane[l] = 0.0f;
    for (int head = 0; head < MAMBA_HEADS; ++head) {
        const float through = fmaf(dt[token * MAMBA_HEADS + head], own, skip[head]);
        for (int c = head * MAMBA_HEAD_DIM; c < (head + 1) * MAMBA_HEAD_DIM; ++c) {
            const float gate = lanes_sigmoid(z[c]);
            dz[c] = gate;  // parked for the last loop
            part[c] = fmaf(through, x[c], past[c]) * (z[c] * gate * r * d[c]);
        }
    }
    for (int c = 0; c < MAMBA_INNER; c += MAMBA_LANES) {
        for (int l = 0; l < MAMBA_LANES; ++l) lane[l] = fmaf(part[c + l], norm_w[c + l], lane[l]);
    }
    const float mean = mamba_sum_lanes(lane) / MAMBA_INNER;
    for (int head = 0; head < MAMBA_HEADS; ++head) {
        const float through = fmaf(dt[token * MAMBA_HEADS + head], own, skip[head]);
        for (int c = head * MAMBA_HEAD_DIM; c < (head + 1) * MAMBA_HEAD_DIM; ++c) {
            const float gate = dz[c], swish = z[c] * gate, y = fmaf(through, x[c], past[c]);
            const float du = r * fmaf(-y * swish * r, mean, norm_w[c] * d[c]);
            d[c] = du * swish;
            dz[c] = du * y * gate * fmaf(z[c], 1.0f - gate, 1.0f);
        }
    }
}

// mamba2_scan_backward_bc: gradients of B and C, one part a head.
// launch: threads B*16, block 32
// One thread eight state columns of a head of a row: the head's 16 channels x 8 states, once forward in time (S, for
// dC), once backward (G, for dB). grad_y [W, B, 128]; grad_bc [W, B, 2, 8, 16]: dB then dC, by head and state column.
extern "C" __global__ void mamba2_scan_backward_bc(const float* __restrict__ xbc, const float* __restrict__ dt,
                                                   const float* __restrict__ decay, const float* __restrict__ grad_y,
                                                   float* __restrict__ grad_bc, int W, int B) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= B * MAMBA_GROUPS) return;
    const int b = i / MAMBA_GROUPS, c = i % MAMBA_GROUPS * MAMBA_LANES, head = c / MAMBA_STATE, n = c % MAMBA_STATE;
    const int first = head * MAMBA_HEAD_DIM;
    ScanTile<> state;
    scan_clear(&state);
    for (int w = 0; w < W; ++w) {
        const long long token = (long long)w * B + b, at = token * MAMBA_HEADS + head;
        const float* row = xbc + token * MAMBA_XBC;
        scan_step<false>(&state, decay[at], dt[at], row + first, row + MAMBA_B_COLUMN + n,
                         grad_y + token * MAMBA_INNER + first, 1.0f, grad_bc + (token * 2 + 1) * MAMBA_INNER + c);
    }
    scan_clear(&state);
    float later = 0.0f;  // decay of the following snapshot
    for (int w = W - 1; w >= 0; --w) {
        const long long token = (long long)w * B + b, at = token * MAMBA_HEADS + head;
        const float* row = xbc + token * MAMBA_XBC;
        scan_step<false>(&state, later, 1.0f, grad_y + token * MAMBA_INNER + first, row + MAMBA_C_COLUMN + n,
                         row + first, dt[at], grad_bc + token * 2 * MAMBA_INNER + c);
        later = decay[at];
    }
}

// mamba2_scan_backward_x: r_w = decay_{w+1} G_{w+1} B_w, the gradient of dt x through later snapshots.
// launch: threads B*16, block 32
// One thread eight channels of a row, backward in time. grad_y, grad_x [W, B, 128].
extern "C" __global__ void mamba2_scan_backward_x(const float* __restrict__ xbc, const float* __restrict__ decay,
                                                  const float* __restrict__ grad_y, float* __restrict__ grad_x, int W,
                                                  int B) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= B * MAMBA_GROUPS) return;
    const int b = i / MAMBA_GROUPS, c = i % MAMBA_GROUPS * MAMBA_LANES, head = c / MAMBA_HEAD_DIM;
    ScanTile<> state;
    scan_clear(&state);
    float later = 0.0f;
    for (int w = W - 1; w >= 0; --w) {
        const long long token = (long long)w * B + b;
        const float* row = xbc + token * MAMBA_XBC;
        scan_step<true>(&state, later, 1.0f, row + MAMBA_C_COLUMN, grad_y + token * MAMBA_INNER + c,
                        row + MAMBA_B_COLUMN, 1.0f, grad_x + token * MAMBA_INNER + c);
        later = decay[token * MAMBA_HEADS + head];
    }
}

// mamba2_scan_backward_dt: gradients of the step sizes, of a_log and of the skip.
// launch: threads B*8, block 32
// One thread a head of a row, backward in time (the running sum of the opening comment). grad_x [W, B, 128] from
// mamba2_scan_backward_x; grad_proj [W, B, 296]: columns of dt are written; grad_head [B, 2, 8]: the row's part of
// dL/da_log, then of dL/dskip. sigmoid(dt_raw + dt_bias) = 1 - exp(-dt).
extern "C" __global__ void mamba2_scan_backward_dt(const float* __restrict__ xbc, const float* __restrict__ dt,
                                                   const float* __restrict__ s, const float* __restrict__ a_log,
                                                   const float* __restrict__ grad_y, const float* __restrict__ grad_x,
                                                   float* __restrict__ grad_proj, float* __restrict__ grad_head, int W,
                                                   int B) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= B * MAMBA_HEADS) return;
    const int b = i / MAMBA_HEADS, head = i % MAMBA_HEADS, first = head * MAMBA_HEAD_DIM;
    const float rate = expf(a_log[head]);
    float grad_log_decay = 0.0f, grad_a_log = 0.0f, grad_skip = 0.0f;
    for (int w = W - 1; w >= 0; --w) {
        const long long token = (long long)w * B + b;
        const float* dy = grad_y + token * MAMBA_INNER + first;
        const float* row = xbc + token * MAMBA_XBC;
        const float* x = row + first;
        const float step = dt[token * MAMBA_HEADS + head];
        const float later = mamba_dot16(x, grad_x + token * MAMBA_INNER + first), through_x = mamba_dot16(dy, x);
        grad_log_decay += mamba_dot16(dy, s + token * MAMBA_INNER + first) - step * later;
        grad_a_log = fmaf(grad_log_decay, -rate * step, grad_a_log);
        grad_skip += through_x;
        const float grad_step = fmaf(-rate, grad_log_decay, fmaf(mamba_own(row), through_x, later));
        grad_proj[token * MAMBA_PROJ + MAMBA_DT_COLUMN + head] = grad_step * -expm1f(-step);
    }
    grad_head[(long long)b * 2 * MAMBA_HEADS + head] = grad_a_log;
    grad_head[(long long)b * 2 * MAMBA_HEADS + MAMBA_HEADS + head] = grad_skip;
}

// Gradients of SiLU's output in columns c .. c+7 of (x, B, C): x from later
// snapshots and its own, B and C summed over the heads.
static __device__ inline void conv_output_gradient(const float* xbc, const float* grad_x, const float* grad_y,
                                                   const float* grad_bc, const float* dt, const float* skip,
                                                   long long token, int c, float* grad) {
    if (c < MAMBA_INNER) {
        const int head = c / MAMBA_HEAD_DIM;
        const float step = dt[token * MAMBA_HEADS + head];
        const float through = fmaf(step, mamba_own(xbc + token * MAMBA_XBC), skip[head]);
        const float* later = grad_x + token * MAMBA_INNER + c;
        const float* dy = grad_y + token * MAMBA_INNER + c;
        for (int l = 0; l < MAMBA_LANES; ++l) grad[l] = fmaf(step, later[l], through * dy[l]);
        return;
    }
    const int map = (c - MAMBA_INNER) / MAMBA_STATE, n = (c - MAMBA_INNER) % MAMBA_STATE;
    const float* part = grad_bc + token * 2 * MAMBA_INNER + map * MAMBA_INNER + n;
    for (int l = 0; l < MAMBA_LANES; ++l) grad[l] = 0.0f;
    for (int head = 0; head < MAMBA_HEADS; ++head) {
        for (int l = 0; l < MAMBA_LANES; ++l) grad[l] += part[head * MAMBA_STATE + l];
    }
}

// sum += a b, lane by lane.
static __device__ inline void conv_multiply_add(const float* a, const float* b, float* sum) {
    for (int l = 0; l < MAMBA_LANES; ++l) sum[l] = fmaf(a[l], b[l], sum[l]);
}

// Ages a window of four snapshots by one: place 0 becomes free.
static __device__ inline void conv_shift(float (*window)[MAMBA_LANES]) {
    for (int k = MAMBA_TAPS - 1; k > 0; --k) {
        for (int l = 0; l < MAMBA_LANES; ++l) window[k][l] = window[k - 1][l];
    }
}

// grad *= SiLU'(convolution of the inputs).
static __device__ inline void conv_slope(const float (*taps)[MAMBA_LANES], const float (*inputs)[MAMBA_LANES],
                                         const float* bias, float* grad) {
    float v[MAMBA_LANES];
    for (int l = 0; l < MAMBA_LANES; ++l) v[l] = bias[l];
    for (int k = 0; k < MAMBA_TAPS; ++k) conv_multiply_add(taps[k], inputs[k], v);
    for (int l = 0; l < MAMBA_LANES; ++l) grad[l] *= lanes_silu_slope(v[l]);
}

// mamba2_conv_backward: through SiLU and convolution to the in-projection and the taps.
// launch: threads B*20, block 32
// One thread eight adjacent columns of a row, backward in time, with the last four gradients and inputs of each in
// registers. grad_proj [W, B, 296]: columns of x, B, C are written; grad_conv [B, 5, 160]: the row's part of the four
// taps', then of the bias' gradient.
extern "C" __global__ void mamba2_conv_backward(const float* __restrict__ proj, const float* __restrict__ conv_w,
                                                const float* __restrict__ conv_b, const float* __restrict__ xbc,
                                                const float* __restrict__ skip, const float* __restrict__ dt,
                                                const float* __restrict__ grad_y, const float* __restrict__ grad_x,
                                                const float* __restrict__ grad_bc, float* __restrict__ grad_proj,
                                                float* __restrict__ grad_conv, int W, int B) {
    const int groups = MAMBA_XBC / MAMBA_LANES;
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= B * groups) return;
    const int b = i / groups, c = i % groups * MAMBA_LANES;
    float taps[MAMBA_TAPS][MAMBA_LANES], grad_taps[MAMBA_TAPS][MAMBA_LANES], inputs[MAMBA_TAPS][MAMBA_LANES];
    float ahead[MAMBA_TAPS][MAMBA_LANES];  // gradients before SiLU at snapshots w .. w+3; 0 after the last
    float bias[MAMBA_LANES], grad_bias[MAMBA_LANES], grad[MAMBA_LANES];
    for (int l = 0; l < MAMBA_LANES; ++l) {
        bias[l] = conv_b[c + l];
        grad_bias[l] = 0.0f;
        for (int k = 0; k < MAMBA_TAPS; ++k) {
            taps[k][l] = conv_w[k * MAMBA_XBC + c + l];
            inputs[k][l] = conv_input(proj, W - MAMBA_TAPS + k, b, B, c + l);
            grad_taps[k][l] = 0.0f;
            ahead[k][l] = 0.0f;
        }
    }
    for (int w = W - 1; w >= 0; --w) {
        const long long token = (long long)w * B + b;
        conv_output_gradient(xbc, grad_x, grad_y, grad_bc, dt, skip, token, c, grad);
        conv_slope(taps, inputs, bias, grad);
        conv_shift(ahead);
        for (int l = 0; l < MAMBA_LANES; ++l) ahead[0][l] = grad[l];
        for (int k = 0; k < MAMBA_TAPS; ++k) conv_multiply_add(grad, inputs[k], grad_taps[k]);
        for (int l = 0; l < MAMBA_LANES; ++l) grad_bias[l] += grad[l];
        for (int l = 0; l < MAMBA_LANES; ++l) grad[l] = 0.0f;
        for (int k = 0; k < MAMBA_TAPS; ++k) conv_multiply_add(taps[MAMBA_TAPS - 1 - k], ahead[k], grad);
        float* out = grad_proj + token * MAMBA_PROJ + MAMBA_XBC_COLUMN + c;
        for (int l = 0; l < MAMBA_LANES; ++l) out[l] = grad[l];
        conv_shift(inputs);
        for (int l = 0; l < MAMBA_LANES; ++l) inputs[0][l] = conv_input(proj, w - MAMBA_TAPS, b, B, c + l);
    }
    float* sums = grad_conv + (long long)b * (MAMBA_TAPS + 1) * MAMBA_XBC + c;
    for (int l = 0; l < MAMBA_LANES; ++l) {
        for (int k = 0; k < MAMBA_TAPS; ++k) sums[k * MAMBA_XBC + l] = grad_taps[k][l];
        sums[MAMBA_TAPS * MAMBA_XBC + l] = grad_bias[l];
    }
}
