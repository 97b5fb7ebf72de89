// Multi-resolution features: what price, volatility, order flow and trading did over three time constants.
//
// For each time constant tau, six decayed sums S of the past of the session:
//   S_i = a_i S_{i-1} + u_i,   a_i = exp(-dt_i / tau),   dt_i = time since the snapshot before
//   channel   u_i                              what S is
//   PRICE     dm_i, the change of the mid      mid minus its time-weighted EMA (weight 1 - exp(-dt/tau), the mid held
//                                              between snapshots): M_i = a M_{i-1} + (1 - a) m_{i-1} gives
//                                              m_i - M_i = a (m_{i-1} - M_{i-1}) + dm_i
//   SQUARE    dm_i^2                           squared moves
//   FLOW      e_i, the order flow of level 0   net order flow in lots (Cont, Kukanov and Stoikov 2014)
//   FLOW_ABS  |e_i|                            order flow of either sign
//   TRADES    trade_count_i                    trades
//   MASS      tau (1 - a_i)                    integral of the kernel over the past that exists, seconds; tau at last
// Features, for each tau (output column 4 h + k, h = fast, mid, slow):
//   0 price change   PRICE / sqrt(tau)                   ticks / sqrt(s)
//   1 volatility     sqrt(SQUARE / mass)                 ticks / sqrt(s)
//   2 order flow     FLOW / FLOW_ABS                     -1 .. 1
//   3 trade burst    ln(1 + TRADES / mass) / 2           a burst is a fast one above the slow one
// with mass = max(MASS, that of one second): one early event is not a storm. The first snapshot of a session has
// S = 0 and features 0: nothing crosses a session break.
//
// Sums are float64: with dt = 100 us and tau = 600 s, 1 - a is two float32 roundings of 1, and a would lose it.
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define N_TAU 3
#define N_CHANNELS 6
#define STATE_DIM (N_TAU * N_CHANNELS)
#define PRICE 0
#define SQUARE 1
#define FLOW 2
#define FLOW_ABS 3
#define TRADES 4
#define MASS 5
#define MIN_ELAPSED_S 1.0   // s
#define MIN_FLOW_LOTS 1e-9  // floor of a divisor
#define BURST_SCALE 0.5     // 1 / ln(trades/s)
#define S_PER_NS 1e-9

static_assert(MULTIRES_DIM == 4 * N_TAU && ISV_MULTIRES_HORIZON_SLOW == ISV_MULTIRES_HORIZON_FAST + N_TAU - 1, "layout");

// What a snapshot adds: its distance to the one before in time, price, order flow and trades.
struct Arrival {
    double seconds, move, flow, trades;
};

// Snapshot s against s - 1; both must be of one session. Time that runs back counts as none.
static __device__ inline Arrival arrival(const float* bid_px, const float* bid_sz, const float* ask_px,
                                         const float* ask_sz, const unsigned int* trade_count,
                                         const unsigned long long* ts_ns, long long s) {
    float bid = bid_px[s * N_LEVELS], ask = ask_px[s * N_LEVELS];
    float old_bid = bid_px[(s - 1) * N_LEVELS], old_ask = ask_px[(s - 1) * N_LEVELS];
    float flow = 0.0f;
    if (bid >= old_bid) flow += bid_sz[s * N_LEVELS];
    if (bid <= old_bid) flow -= bid_sz[(s - 1) * N_LEVELS];
    if (ask <= old_ask) flow -= ask_sz[s * N_LEVELS];
    if (ask >= old_ask) flow += ask_sz[(s - 1) * N_LEVELS];
    Arrival a;
    a.seconds = ts_ns[s] > ts_ns[s - 1] ? (double)(ts_ns[s] - ts_ns[s - 1]) * S_PER_NS : 0.0;
    a.move = (double)((bid + ask) * 0.5f - (old_bid + old_ask) * 0.5f);
    a.flow = (double)flow;
    a.trades = (double)trade_count[s];
    return a;
}

// One step of the recurrence for all time constants: the only place where the sums move.
static __device__ inline void advance(double* sum, const Arrival& a, const double* tau) {
    for (int h = 0; h < N_TAU; ++h) {
        double* s = sum + h * N_CHANNELS;
        double decay = exp(-a.seconds / tau[h]);
        s[PRICE] = decay * s[PRICE] + a.move;
        s[SQUARE] = decay * s[SQUARE] + a.move * a.move;
        s[FLOW] = decay * s[FLOW] + a.flow;
        s[FLOW_ABS] = decay * s[FLOW_ABS] + fabs(a.flow);
        s[TRADES] = decay * s[TRADES] + a.trades;
        s[MASS] = decay * s[MASS] + tau[h] * (1.0 - decay);
    }
}

static __device__ inline void features_of(const double* sum, const double* tau, const double* least_mass, float* out) {
    for (int h = 0; h < N_TAU; ++h) {
        const double* s = sum + h * N_CHANNELS;
        double mass = s[MASS] > least_mass[h] ? s[MASS] : least_mass[h];
        double flow_abs = s[FLOW_ABS] > MIN_FLOW_LOTS ? s[FLOW_ABS] : MIN_FLOW_LOTS;
        out[4 * h] = (float)(s[PRICE] / sqrt(tau[h]));
        out[4 * h + 1] = (float)sqrt(s[SQUARE] / mass);
        out[4 * h + 2] = (float)(s[FLOW] / flow_abs);
        out[4 * h + 3] = (float)(BURST_SCALE * log1p(s[TRADES] / mass));
    }
}

static __device__ inline void time_constants(const float* isv, double* tau, double* least_mass) {
    for (int h = 0; h < N_TAU; ++h) {
        tau[h] = (double)isv[ISV_MULTIRES_HORIZON_FAST + h];
        least_mass[h] = tau[h] * (1.0 - exp(-MIN_ELAPSED_S / tau[h]));
    }
}

// multires_segment_sums: what each segment of a session adds to the decayed sums, from sums of 0 at its start.
// launch: threads N_SEGMENTS, block 32
//
// First of three passes that compute the column in parallel: sessions are cut into segments; a linear recurrence over
// a segment is S_out = decay x S_in + local sum. Thread g owns segment g and walks it in order.
// in:  level 0 of the book columns, trade_count, ts_ns; segment_first [N_SEGMENTS + 1] first snapshot of a segment, the
//      last = N_SNAP; segment_restart [N_SEGMENTS] 1 where a segment begins a session
// out: segment_sum [N_SEGMENTS, 18] local sums; segment_decay [N_SEGMENTS, 3] the segment's whole decay
// reads slots MULTIRES_HORIZON_{FAST,MID,SLOW} (s)
// edge: a session's first snapshot adds nothing (there is no snapshot before it).
extern "C" __global__ void multires_segment_sums(
    const float* __restrict__ bid_px, const float* __restrict__ bid_sz, const float* __restrict__ ask_px,
    const float* __restrict__ ask_sz, const unsigned int* __restrict__ trade_count,
    const unsigned long long* __restrict__ ts_ns, const int* __restrict__ segment_first,
    const unsigned char* __restrict__ segment_restart, const float* __restrict__ isv, double* __restrict__ segment_sum,
    double* __restrict__ segment_decay, int N_SEGMENTS) {
    int g = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (g >= N_SEGMENTS) return;
    double tau[N_TAU], least_mass[N_TAU], sum[STATE_DIM];
    time_constants(isv, tau, least_mass);
    for (int c = 0; c < STATE_DIM; ++c) sum[c] = 0.0;
    double seconds = 0.0;
    for (int s = segment_first[g] + (segment_restart[g] ? 1 : 0); s < segment_first[g + 1]; ++s) {
        Arrival a = arrival(bid_px, bid_sz, ask_px, ask_sz, trade_count, ts_ns, s);
        seconds += a.seconds;
        advance(sum, a, tau);
    }
    for (int c = 0; c < STATE_DIM; ++c) segment_sum[(long long)g * STATE_DIM + c] = sum[c];
    for (int h = 0; h < N_TAU; ++h) segment_decay[(long long)g * N_TAU + h] = exp(-seconds / tau[h]);
}

// multires_carry: the decayed sums at the start of each segment.
// launch: threads 18, block 32
//
// Second pass. Thread c owns sum c (time constant c / 6, channel c % 6) and chains all segments in order.
// in:  segment_sum [N_SEGMENTS, 18], segment_decay [N_SEGMENTS, 3], segment_restart [N_SEGMENTS]
// out: segment_carry [N_SEGMENTS, 18] sums at the snapshot before the segment; 0 where a session begins
extern "C" __global__ void multires_carry(
    const double* __restrict__ segment_sum, const double* __restrict__ segment_decay,
    const unsigned char* __restrict__ segment_restart, double* __restrict__ segment_carry, int N_SEGMENTS) {
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= STATE_DIM) return;
    double carry = 0.0;
    for (long long g = 0; g < N_SEGMENTS; ++g) {
        if (segment_restart[g]) carry = 0.0;
        segment_carry[g * STATE_DIM + c] = carry;
        carry = segment_decay[g * N_TAU + c / N_CHANNELS] * carry + segment_sum[g * STATE_DIM + c];
    }
}

// multires_column: the twelve features of every snapshot, a column of the data set.
// launch: threads N_SEGMENTS, block 32
//
// Third pass. Thread g walks segment g again, from the sums it inherits, and writes each snapshot's features.
// in:  as multires_segment_sums; segment_carry [N_SEGMENTS, 18]
// out: multires [N_SNAP, MULTIRES_DIM]
// reads slots MULTIRES_HORIZON_{FAST,MID,SLOW} (s)
// edge: the first snapshot of a session has features 0.
extern "C" __global__ void multires_column(
    const float* __restrict__ bid_px, const float* __restrict__ bid_sz, const float* __restrict__ ask_px,
    const float* __restrict__ ask_sz, const unsigned int* __restrict__ trade_count,
    const unsigned long long* __restrict__ ts_ns, const int* __restrict__ segment_first,
    const unsigned char* __restrict__ segment_restart, const float* __restrict__ isv,
    const double* __restrict__ segment_carry, float* __restrict__ multires, int N_SEGMENTS) {
    int g = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (g >= N_SEGMENTS) return;
    double tau[N_TAU], least_mass[N_TAU], sum[STATE_DIM];
    time_constants(isv, tau, least_mass);
    for (int c = 0; c < STATE_DIM; ++c) sum[c] = segment_carry[(long long)g * STATE_DIM + c];
    int first = segment_first[g];
    for (int s = first; s < segment_first[g + 1]; ++s) {
        bool session_first = s == first && segment_restart[g];
        if (!session_first) advance(sum, arrival(bid_px, bid_sz, ask_px, ask_sz, trade_count, ts_ns, s), tau);
        features_of(sum, tau, least_mass, multires + (long long)s * MULTIRES_DIM);
    }
}

// rl_multires_features_update: multi-resolution features as a streaming state of each row, one snapshot a call.
// launch: threads B, block 32
// updates: multires_state, multires_row
//
// For encoders that are fed row by row (T = 1), called twice a step. Thread b owns row b. offset 0, before the step: a
// row on a new episode restarts its sums; any other stands at snapshot cursor[b] already. offset 1, behind the step:
// its sums move on to snapshot cursor[b] + 1. Memory of a row is its 18 sums, whatever the time constants.
// in:  level 0 of the book columns, trade_count, ts_ns; cursor [B]; new_episode [B]
// io:  multires_state [B, 18] decayed sums; multires_row [B, MULTIRES_DIM]
// reads slots MULTIRES_HORIZON_{FAST,MID,SLOW} (s)
// edge: the first snapshot of an episode has features 0.
extern "C" __global__ void rl_multires_features_update(
    const float* __restrict__ bid_px, const float* __restrict__ bid_sz, const float* __restrict__ ask_px,
    const float* __restrict__ ask_sz, const unsigned int* __restrict__ trade_count,
    const unsigned long long* __restrict__ ts_ns, const int* __restrict__ cursor,
    const unsigned char* __restrict__ new_episode, const float* __restrict__ isv, double* __restrict__ multires_state,
    float* __restrict__ multires_row, int offset, int B) {
    int b = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (b >= B) return;
    bool restart = offset == 0;
    if (restart && !new_episode[b]) return;
    double tau[N_TAU], least_mass[N_TAU], sum[STATE_DIM];
    time_constants(isv, tau, least_mass);
    for (int c = 0; c < STATE_DIM; ++c) sum[c] = restart ? 0.0 : multires_state[(long long)b * STATE_DIM + c];
    if (!restart) {
        advance(sum, arrival(bid_px, bid_sz, ask_px, ask_sz, trade_count, ts_ns, (long long)cursor[b] + offset), tau);
    }
    features_of(sum, tau, least_mass, multires_row + (long long)b * MULTIRES_DIM);
    for (int c = 0; c < STATE_DIM; ++c) multires_state[(long long)b * STATE_DIM + c] = sum[c];
}
