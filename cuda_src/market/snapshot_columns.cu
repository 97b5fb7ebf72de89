// Market records on the device: from an uploaded block of records to the columns that every other kernel reads.
#include "generated/snapshot.cuh"
#include "generated/structure.cuh"

static_assert(N_LEVELS == SNAPSHOT_LEVELS && N_REGIME == SNAPSHOT_REGIME_COUNT, "record and structure disagree");

// snapshot_aos_to_soa: spreads a block of 216-byte records over the ten columns of the data set.
// launch: threads N_BLOCK, block 64
// updates: bid_px, bid_sz, ask_px, ask_sz, prev_mid, trade_signed_vol, trade_count, ts_ns, prev_ts_ns, regime
//
// Thread i copies record i of the block to element first + i of each column; nothing is computed or changed, so a
// column holds the record's bits. One block of records is in flight at a time: first = index of its first record.
// in:  records   [N_BLOCK] Snapshot, one upload
// out: bid_px, bid_sz, ask_px, ask_sz [N_SNAP, N_LEVELS] ticks, lots; prev_mid [N_SNAP] ticks;
//      trade_signed_vol [N_SNAP] lots; trade_count [N_SNAP]; ts_ns, prev_ts_ns [N_SNAP] ns; regime [N_SNAP, N_REGIME].
//      Only elements first .. first + N_BLOCK - 1 are written ("updates": the rest is kept).
// edge: elements past N_SNAP are not written.
extern "C" __global__ void snapshot_aos_to_soa(
    const Snapshot* __restrict__ records, float* __restrict__ bid_px, float* __restrict__ bid_sz,
    float* __restrict__ ask_px, float* __restrict__ ask_sz, float* __restrict__ prev_mid,
    float* __restrict__ trade_signed_vol, unsigned int* __restrict__ trade_count,
    unsigned long long* __restrict__ ts_ns, unsigned long long* __restrict__ prev_ts_ns, float* __restrict__ regime,
    int first, int N_BLOCK, int N_SNAP) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= N_BLOCK || i >= N_SNAP - first) return;
    const Snapshot* record = records + i;
    long long s = (long long)first + i;
    for (int level = 0; level < N_LEVELS; ++level) {
        bid_px[s * N_LEVELS + level] = record->bid_px[level];
        bid_sz[s * N_LEVELS + level] = record->bid_sz[level];
        ask_px[s * N_LEVELS + level] = record->ask_px[level];
        ask_sz[s * N_LEVELS + level] = record->ask_sz[level];
    }
    prev_mid[s] = record->prev_mid;
    trade_signed_vol[s] = record->trade_signed_vol;
    trade_count[s] = record->trade_count;
    ts_ns[s] = record->ts_ns;
    prev_ts_ns[s] = record->prev_ts_ns;
    for (int j = 0; j < N_REGIME; ++j) regime[s * N_REGIME + j] = record->regime[j];
}

// gpu_session_end: writes where the session of each snapshot ends.
// launch: threads N_SNAP, block 64
//
// Thread s finds its session by binary search: the last one that begins at or before s.
// in:  session_first [N_SESSIONS + 1] index of each session's first snapshot, ascending, [0] = 0; the last = N_SNAP
// out: session_end   [N_SNAP] one past the last snapshot of this snapshot's session
extern "C" __global__ void gpu_session_end(const int* __restrict__ session_first, int* __restrict__ session_end,
                                           int N_SESSIONS, int N_SNAP) {
    int s = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (s >= N_SNAP) return;
    int low = 0, high = N_SESSIONS;  // session_first[low] <= s < session_first[high]
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (session_first[middle] <= s) low = middle;
        else high = middle;
    }
    session_end[s] = session_first[high];
}
