// The CfC recurrence forward for many rows (formulas: nets/cfc.cu): 32 rows a block, products by warpgroups, sm_90.
//
// As in cfc_sequence.cuh a warp owns 16 units with their gates and keeps their weights in registers, as the left operand;
// the right one, 32 columns (rows of the batch) of 128 inputs, halves, lies in shared memory, once for h and once for u. A
// product of a warpgroup's instruction does in a quarter of the time what the instructions of a warp do, so the
// tensor cores no longer hold up the rest. Lane 4 g + t holds units 2 g and 2 g + 1 of columns 8 j + 2 t and + 1.
#include "cuda_only/cfc_forward.cuh"
#include "cuda_only/wgmma.cuh"

#define CFC_WIDE_ROWS 32
#define CFC_WIDE_BLOCK 128              // bytes of 8 columns x 8 inputs
#define CFC_WIDE_ALONG_K (CFC_WIDE_ROWS / 8 * CFC_WIDE_BLOCK + 16)  // 16: no two lanes of a store meet in a bank
#define CFC_WIDE_TILE (HIDDEN_DIM / 8 * CFC_WIDE_ALONG_K)           // bytes

#define CFC_WIDE_STRIDE (HIDDEN_DIM + 4)  // of a row of pre, likewise
#define CFC_WIDE_SHARED 36480

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "cuda_only/mma.cuh"

struct CfcWideShared {
    char h[CFC_WIDE_TILE], u[CFC_WIDE_TILE];
    float pre[CFC_WIDE_ROWS * CFC_WIDE_STRIDE], bias[5 * HIDDEN_DIM], gap[CFC_WIDE_ROWS];
};
static_assert(sizeof(CfcWideShared) <= CFC_WIDE_SHARED, "the launch rules ask for less than it takes");

template <bool KEEP>
struct CfcWideForward {
    const CfcForward& p;
    const int lane, warp, g, t, unit, first_row;
    unsigned int backbone[8][4], gate[4][8][4];
    float next_gap;  // of the row that is the lane's number, loaded ahead of its use
    CfcWideShared& s;

    __device__ __forceinline__ CfcWideForward(const CfcForward& p, CfcWideShared& s)
        : s(s), p(p), lane(threadIdx.x % 32), warp(threadIdx.x / 32), g(lane / 4), t(lane % 4), unit(warp * CFC_UNITS + 2 * g),
          first_row((int)blockIdx.x * CFC_WIDE_ROWS) {
#pragma unroll
        for (int s = 0; s < 8; ++s) {
            read(p.w_backbone + (HIDDEN_DIM + 16 * s + 2 * t) * HIDDEN_DIM + unit, HIDDEN_DIM, backbone[s]);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                read(p.w_gates + (16 * s + 2 * t) * CFC_GATES + k * HIDDEN_DIM + unit, CFC_GATES, gate[k][s]);
            }
        }
        for (int i = threadIdx.x; i < 5 * HIDDEN_DIM; i += CFC_THREADS) {
            s.bias[i] = i < HIDDEN_DIM ? p.b_backbone[i] : p.b_gates[i - HIDDEN_DIM];
        }
        fetch_pre(0);
        fetch_gap(0);
        copy_wait<0>();
        __syncthreads();
    }

    // Inputs 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of 16, of the lane's two units; rows of weights `width` apart.
    static __device__ __forceinline__ void read(const float* w, int width, unsigned int* to) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2 a = read_pair(w + 8 * half * width, true), b = read_pair(w + (8 * half + 1) * width, true);
            to[2 * half] = to_halves(a.x, b.x);
            to[2 * half + 1] = to_halves(a.y, b.y);
        }
    }

    // Row of the batch of the lane's column i (of eight), and whether there is one.
    __device__ __forceinline__ int column(int i) const { return i / 2 * 8 + 2 * t + i % 2; }
    __device__ __forceinline__ int row(int i) const { return first_row + column(i); }
    __device__ __forceinline__ bool inside(int i) const { return row(i) < p.B; }
    __device__ __forceinline__ long long at(int w, int i, int columns) const {
        return (long long)(w * p.B + row(i)) * columns + unit;
    }
    __device__ __forceinline__ float2 bias(int k) const { return *(const float2*)(s.bias + k * HIDDEN_DIM + unit); }

    // Starts the copy of a snapshot's pre; what lies outside is zero.
    __device__ __forceinline__ void fetch_pre(int w) const {
#pragma unroll
        for (int i = 0; i < CFC_WIDE_ROWS * HIDDEN_DIM / 4 / CFC_THREADS; ++i) {
            const int item = threadIdx.x + i * CFC_THREADS, n = item / (HIDDEN_DIM / 4), k = item % (HIDDEN_DIM / 4) * 4;
            const bool in = w < p.W && first_row + n < p.B;
            const float* from = in ? p.pre + (long long)(w * p.B + first_row + n) * HIDDEN_DIM + k : p.pre;
            copy16_async(s.pre + n * CFC_WIDE_STRIDE + k, from, in ? 16 : 0);
        }
        copy_commit();
    }

    __device__ __forceinline__ void fetch_gap(int w) {
        const int row = first_row + lane;
        next_gap = w < p.W && row < p.B ? p.gap[(long long)w * p.B + row] : 0.0f;
    }

    // The lane's two units of column i as inputs of the next product.
    __device__ __forceinline__ void put(char* tile, int i, float a, float b) const {
        char* to = tile + (2 * warp + g / 4) * CFC_WIDE_ALONG_K + i / 2 * CFC_WIDE_BLOCK + (2 * t + i % 2) * 16 + g % 4 * 4;
        *(unsigned int*)to = to_halves(a, b);
    }

    static __device__ __forceinline__ unsigned long long operand(const char* tile) {
        return wgmma_operand(tile, CFC_WIDE_ALONG_K, CFC_WIDE_BLOCK);
    }

    // u of snapshot w. What comes next is loaded while the tensor cores work.
    __device__ __forceinline__ void do_backbone(int w, const char* h_tile, char* u_tile) {
        float v[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) v[i] = 0.0f;
        if (w > 0) {
            const unsigned long long h = operand(h_tile);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < 8; ++s) WgmmaHalf<32>::run(v, backbone[s], h + s * (2 * CFC_WIDE_ALONG_K / 16), s > 0);
            wgmma_commit();
            wgmma_wait();
        }
        const float2 b = bias(0);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float* d = v + i / 2 * 4 + i % 2;
            const float2 pre = *(const float2*)(s.pre + column(i) * CFC_WIDE_STRIDE + unit);
            const float one = CFC_AMPLITUDE * quick_tanh(CFC_SLOPE * (pre.x + d[0] + b.x));
            const float two = CFC_AMPLITUDE * quick_tanh(CFC_SLOPE * (pre.y + d[2] + b.y));
            put(u_tile, i, one, two);
            if (KEEP && inside(i)) write_pair(p.u + at(w, i, HIDDEN_DIM), one, two);
        }
        if (warp == 0) s.gap[lane] = next_gap;
        fetch_gap(w + 1);
        show_to_tensor_cores();
    }

    // Gates and h of snapshot w, half of the columns at a time.
    __device__ __forceinline__ void do_gates(int w, const char* u_tile, char* h_tile) {
        const unsigned long long u = operand(u_tile);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float d[4][8];
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                const unsigned long long from = u + (s * 2 * CFC_WIDE_ALONG_K + half * 2 * CFC_WIDE_BLOCK) / 16;
#pragma unroll
                for (int k = 0; k < 4; ++k) WgmmaHalf<16>::run(d[k], gate[k][s], from, s > 0);
            }
            wgmma_commit();
            wgmma_wait();
#pragma unroll
            for (int n = 0; n < 4; ++n) finish(w, 4 * half + n, n / 2 * 4 + n % 2, d, h_tile);
        }
        show_to_tensor_cores();
    }

    // h of column i from element e (and e + 2, of the second unit) of the gates' sums.
    __device__ __forceinline__ void finish(int w, int i, int e, const float (*d)[8], char* h_tile) const {
        const float2 b[4] = {bias(1), bias(2), bias(3), bias(4)};
        const float gap = s.gap[column(i)];
        float f[2], o[2], blend[2], next[2];
#pragma unroll
        for (int second = 0; second < 2; ++second) {
            f[second] = quick_tanh(d[0][e + 2 * second] + (second ? b[0].y : b[0].x));
            o[second] = quick_tanh(d[1][e + 2 * second] + (second ? b[1].y : b[1].x));
            const float rate = d[2][e + 2 * second] + (second ? b[2].y : b[2].x);
            const float offset = d[3][e + 2 * second] + (second ? b[3].y : b[3].x);
            blend[second] = quick_sigmoid(fmaf(-rate, gap, offset));
            next[second] = fmaf(f[second] - o[second], blend[second], o[second]);
        }
        put(h_tile, i, next[0], next[1]);
        if (!inside(i)) return;
        if (KEEP) {
            float* gates = p.gates + at(w, i, CFC_GATES);
            write_pair(gates + CFC_F, f[0], f[1]);
            write_pair(gates + CFC_G, o[0], o[1]);
            write_pair(gates + CFC_RATE, blend[0], blend[1]);
            if (w == 0) write_pair(p.states + at(0, i, HIDDEN_DIM), 0.0f, 0.0f);
            write_pair(p.states + at(w + 1, i, HIDDEN_DIM), next[0], next[1]);
        }
        const int behind = w - (p.W - 1 - p.T);
        if (behind >= 0) write_pair(p.h + at(behind, i, HIDDEN_DIM), next[0], next[1]);
    }

    __device__ __forceinline__ void run() {
        for (int w = 0; w < p.W; ++w) {
            do_backbone(w, s.h, s.u);
            __syncthreads();
            fetch_pre(w + 1);
            do_gates(w, s.u, s.h);
            copy_wait<0>();
            __syncthreads();
        }
    }
};

#endif

template <bool KEEP>
static __device__ __forceinline__ void wide_forward(const CfcForward& p) {
    extern __shared__ __align__(16) unsigned int wide_memory[];
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    CfcWideForward<KEEP>(p, *(CfcWideShared*)wide_memory).run();
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    sequence_forward<KEEP, 2>(p, CFC_WIDE_ROWS / 8, wide_memory);  // elsewhere: as many rows by tiles of eight
#endif
}

// cfc_wide_forward: cfc_sequence_forward for many rows.
// launch: blocks (B + 31)/32, block 256, shared 36480
// fuses: cfc_backbone_forward, cfc_gates_forward
// Arguments are those of cfc_sequence_forward.
extern "C" __global__ void __launch_bounds__(256, 1) cfc_wide_forward(
    const float* __restrict__ pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ b_cfc_backbone,
    const float* __restrict__ w_cfc_gates, const float* __restrict__ b_cfc_gates, const float* __restrict__ gap,
    float* __restrict__ u, float* __restrict__ gates, float* __restrict__ states, float* __restrict__ h, int W, int T,
    int B) {
    wide_forward<true>({pre, w_cfc_backbone, b_cfc_backbone, w_cfc_gates, b_cfc_gates, gap, u, gates, states, h, W, T, B});
}

// cfc_wide_encode: cfc_sequence_encode for many rows.
// launch: blocks (B + 31)/32, block 256, shared 36480
// fuses: cfc_backbone_forward, cfc_gates_forward
extern "C" __global__ void __launch_bounds__(256, 1) cfc_wide_encode(
    const float* __restrict__ pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ b_cfc_backbone,
    const float* __restrict__ w_cfc_gates, const float* __restrict__ b_cfc_gates, const float* __restrict__ gap,
    float* __restrict__ h, int W, int T, int B) {
    wide_forward<false>({pre, w_cfc_backbone, b_cfc_backbone, w_cfc_gates, b_cfc_gates, gap, nullptr, nullptr, nullptr, h,
                         W, T, B});
}
