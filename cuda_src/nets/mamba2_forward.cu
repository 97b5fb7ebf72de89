// A Mamba-2 block forward: convolution, step sizes, scan, gated normalisation (mamba2.cuh has the formulas).
#include "nets/mamba2.cuh"

// mamba2_conv_forward: causal convolution and SiLU of x, B and C.
// launch: blocks W*B, block 160
// One block a token, one thread a column. proj [W, B, 296]; conv_w [4, 160], oldest tap first; conv_b [160];
// xbc [W, B, 160].
extern "C" __global__ void mamba2_conv_forward(const float* __restrict__ proj, const float* __restrict__ conv_w,
                                               const float* __restrict__ conv_b, float* __restrict__ xbc, int W,
                                               int B) {
    const int token = (int)blockIdx.x, c = (int)threadIdx.x;
    const int w = token / B, b = token % B;
    float v = conv_b[c];
    for (int k = 0; k < MAMBA_TAPS; ++k) {
        v = fmaf(conv_w[k * MAMBA_XBC + c], conv_input(proj, w - (MAMBA_TAPS - 1) + k, b, B, c), v);
    }
    xbc[(long long)token * MAMBA_XBC + c] = lanes_silu(v);
}

// mamba2_dt_forward: step sizes and decays.
// launch: threads W*B*8, block 64
// One thread a head of a token. proj [W, B, 296]; dt_bias, a_log [8]; dt (snapshots), decay (0..1) [W, B, 8].
extern "C" __global__ void mamba2_dt_forward(const float* __restrict__ proj, const float* __restrict__ dt_bias,
                                             const float* __restrict__ a_log, float* __restrict__ dt,
                                             float* __restrict__ decay, int W, int B) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)W * B * MAMBA_HEADS) return;
    const int head = (int)(i % MAMBA_HEADS);
    const float step = softplus(proj[i / MAMBA_HEADS * MAMBA_PROJ + MAMBA_DT_COLUMN + head] + dt_bias[head]);
    dt[i] = step;
    decay[i] = expf(-expf(a_log[head]) * step);
}

// mamba2_scan_forward: the state space recurrence; s_w = decay_w S_{w-1} C_w.
// launch: threads B*16, block 32
// One thread eight channels of a row: their 16 x 8 states in registers, all snapshots in order. xbc [W, B, 160];
// dt, decay [W, B, 8]; s [W, B, 128].
extern "C" __global__ void mamba2_scan_forward(const float* __restrict__ xbc, const float* __restrict__ dt,
                                               const float* __restrict__ decay, float* __restrict__ s, int W, int B) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= B * MAMBA_GROUPS) return;
    const int b = i / MAMBA_GROUPS, c = i % MAMBA_GROUPS * MAMBA_LANES, head = c / MAMBA_HEAD_DIM;
    ScanTile<> state;
    scan_clear(&state);
    for (int w = 0; w < W; ++w) {
        const long long token = (long long)w * B + b, at = token * MAMBA_HEADS + head;
        const float* row = xbc + token * MAMBA_XBC;
        scan_step<true>(&state, decay[at], dt[at], row + MAMBA_B_COLUMN, row + c, row + MAMBA_C_COLUMN, 1.0f,
                        s + token * MAMBA_INNER + c);
    }
}

// mamba2_norm_forward: skip connection, gate and RMS normalisation.
// launch: threads W*B, block 64
// One thread a token; the mean square is summed in eight partial sums. s [W, B, 128]; xbc [W, B, 160];
// proj [W, B, 296] (z); dt [W, B, 8]; skip [8]; norm_w [128]; norm [W, B, 128]; rstd [W, B] = 1 / sqrt(mean u^2 + eps).
extern "C" __global__ void mamba2_norm_forward(const float* __restrict__ s, const float* __restrict__ xbc,
                                               const float* __restrict__ proj, const float* __restrict__ dt,
                                               const float* __restrict__ skip, const float* __restrict__ norm_w,
                                               float* __restrict__ norm, float* __restrict__ rstd, int W, int B) {
    const long long token = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= (long long)W * B) return;
    const float* past = s + token * MAMBA_INNER;
    const float* x = xbc + token * MAMBA_XBC;
    const float own = mamba_own(x);
    const float* z = proj + token * MAMBA_PROJ;
    float* out = norm + token * MAMBA_INNER;
    float lane[MAMBA_LANES];
    for (int l = 0; l < MAMBA_LANES; ++l) lane[l] = 0.0f;
    for (int head = 0; head < MAMBA_HEADS; ++head) {
        const float through = fmaf(dt[token * MAMBA_HEADS + head], own, skip[head]);
        for (int c = head * MAMBA_HEAD_DIM; c < (head + 1) * MAMBA_HEAD_DIM; ++c) {
            out[c] = fmaf(through, x[c], past[c]) * lanes_silu(z[c]);
        }
    }
    for (int c = 0; c < MAMBA_INNER; c += MAMBA_LANES) {
        for (int l = 0; l < MAMBA_LANES; ++l) lane[l] = fmaf(out[c + l], out[c + l], lane[l]);
    }
    const float r = 1.0f / sqrtf(mamba_sum_lanes(lane) / MAMBA_INNER + MAMBA_NORM_EPS);
    for (int c = 0; c < MAMBA_INNER; ++c) out[c] *= r * norm_w[c];
    rstd[token] = r;
}
