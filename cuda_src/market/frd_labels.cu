// Labels of the supervised heads: what the mid did over three horizons, from the data alone.
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

static_assert(N_HORIZONS == 3 && ISV_FRD_SIGMA_LONG == ISV_FRD_SIGMA_SHORT + N_HORIZONS - 1, "one sigma a horizon");

#define LABEL_UNKNOWN (-1)

static __device__ inline float mid_of(const float* bid_px, const float* ask_px, long long s) {
    return (bid_px[s * N_LEVELS] + ask_px[s * N_LEVELS]) * 0.5f;
}

// Bucket of z = return / sigma among N_BUCKETS centres linspace(-span, span): the nearest one (halves to even), the
// first and last bucket open. NaN (no sigma) has no bucket.
static __device__ inline int nearest_bucket(float z, float span) {
    float place = (z + span) * ((float)(N_BUCKETS - 1) / (2.0f * span));
    if (!(place == place)) return LABEL_UNKNOWN;
    return (int)rintf(clampf(place, 0.0f, (float)(N_BUCKETS - 1)));
}

// gpu_frd_labels: forward-return buckets and directions of every snapshot; runs once when the data are loaded.
// launch: threads N_SNAP, block 64
//
// r_h(s) = mid(s + h) - mid(s) in ticks, exact in float32, where s + h lies in the session of s; else no label.
// frd_label = nearest of 21 centres to r_h / sigma_h; direction_label = 1 where r_h > 0, 0 where r_h < 0, -1 where 0.
// Thread s owns snapshot s.
// in:  bid_px, ask_px [N_SNAP, N_LEVELS] ticks; session_end [N_SNAP]; horizons in snapshots
// out: frd_label [N_SNAP, N_HORIZONS] 0..20 or -1; direction_label [N_SNAP, N_HORIZONS] 1, 0 or -1
// reads slots FRD_SIGMA_SPAN, FRD_SIGMA_{SHORT,MEDIUM,LONG} (ticks; of the training range, also for held-out data)
// edge: an overflowing place (sigma next to 0) ends in the open end bucket; 0 / 0 has no label.
extern "C" __global__ void gpu_frd_labels(
    const float* __restrict__ bid_px, const float* __restrict__ ask_px, const int* __restrict__ session_end,
    const float* __restrict__ isv, signed char* __restrict__ frd_label, signed char* __restrict__ direction_label,
    int horizon_short, int horizon_medium, int horizon_long, int N_SNAP) {
    int s = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (s >= N_SNAP) return;
    const int horizon[N_HORIZONS] = {horizon_short, horizon_medium, horizon_long};
    float span = isv[ISV_FRD_SIGMA_SPAN];
    float mid = mid_of(bid_px, ask_px, s);
    for (int h = 0; h < N_HORIZONS; ++h) {
        int bucket = LABEL_UNKNOWN, direction = LABEL_UNKNOWN;
        if (horizon[h] < session_end[s] - s) {
            float change = mid_of(bid_px, ask_px, (long long)s + horizon[h]) - mid;
            bucket = nearest_bucket(change / isv[ISV_FRD_SIGMA_SHORT + h], span);
            direction = change > 0.0f ? 1 : (change < 0.0f ? 0 : LABEL_UNKNOWN);
        }
        long long at = (long long)s * N_HORIZONS + h;
        frd_label[at] = (signed char)bucket;
        direction_label[at] = (signed char)direction;
    }
}

// gpu_gather_frd_labels: the labels of the snapshots of this iteration's steps.
// launch: threads T*B, block 64
//
// Thread (t, b), b fastest, copies the labels of snapshot cursor[b] + t.
// in:  frd_label, direction_label [N_SNAP, N_HORIZONS]; cursor [B]
// out: frd_target, direction_target [T, B, N_HORIZONS]
// edge: a snapshot outside the data set has no label (-1).
extern "C" __global__ void gpu_gather_frd_labels(
    const signed char* __restrict__ frd_label, const signed char* __restrict__ direction_label,
    const int* __restrict__ cursor, signed char* __restrict__ frd_target, signed char* __restrict__ direction_target,
    int T, int B, int N_SNAP) {
    int item = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (item >= T * B) return;
    int t = item / B, b = item - t * B;
    long long s = (long long)cursor[b] + t;
    bool inside = s >= 0 && s < N_SNAP;
    for (int h = 0; h < N_HORIZONS; ++h) {
        long long to = (long long)item * N_HORIZONS + h;
        frd_target[to] = inside ? frd_label[s * N_HORIZONS + h] : (signed char)LABEL_UNKNOWN;
        direction_target[to] = inside ? direction_label[s * N_HORIZONS + h] : (signed char)LABEL_UNKNOWN;
    }
}
