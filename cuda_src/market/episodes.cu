// Where each row stands in the data: episode starts and cursors.
#include "include/rng.cuh"

// gpu_sample_starts: gives each row whose episode is over a new start, uniform over all legal starts.
// launch: threads B, block 64
// updates: cursor, episode_end, rng_episode
//
// This is the sampling half of sample-and-gather; the gather is the feature assembly (features.cu).
// A start c is legal where K snapshots lie behind it and episode_len + latency ahead of it, all in its own session:
//   session_first + K <= c,  c + episode_len + latency < session_end.
// The host lists the legal starts as spans, one a session that is long enough. Start number u of all
// span_cumulative[N_SPANS] legal ones lies in the last span j with span_cumulative[j] <= u.
// Thread b owns row b. A row draws only when its episode is over (one number of its xorshift32 stream), so rows do
// not disturb each other. Rows begin with cursor = episode_end = 0: over, so that the first call draws for all.
// in:  span_first      [N_SPANS] first legal start of a span; span_cumulative [N_SPANS + 1] legal starts before it
// io:  cursor          [B] snapshot of step t = 0; episode_end [B] cursor at which the episode is over
//      rng_episode     [B] xorshift32 state
// out: new_episode     [B] 1 where the row drew, else 0
// edge: bias of the draw below (number of starts) / 2^32.
extern "C" __global__ void gpu_sample_starts(
    const int* __restrict__ span_first, const int* __restrict__ span_cumulative, int* __restrict__ cursor,
    int* __restrict__ episode_end, unsigned char* __restrict__ new_episode, unsigned int* __restrict__ rng_episode,
    int episode_len, int N_SPANS, int B) {
    int b = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (b >= B) return;
    bool over = cursor[b] >= episode_end[b];
    if (over) {
        unsigned int state = rng_episode[b];
        int u = (int)uniform_below(&state, (unsigned int)span_cumulative[N_SPANS]);
        int low = 0, high = N_SPANS;  // span_cumulative[low] <= u < span_cumulative[high]
        while (high - low > 1) {
            int middle = low + (high - low) / 2;
            if (span_cumulative[middle] <= u) low = middle;
            else high = middle;
        }
        int start = span_first[low] + (u - span_cumulative[low]);
        cursor[b] = start;
        episode_end[b] = start + episode_len;
        rng_episode[b] = state;
    }
    new_episode[b] = over ? 1 : 0;
}

// gpu_advance_cursor: moves every row on by the steps of one iteration.
// launch: threads B, block 64
// updates: cursor
//
// Runs at the end of an iteration, after the last reader of cursor. Thread b owns row b.
// io:  cursor [B] += T
extern "C" __global__ void gpu_advance_cursor(int* __restrict__ cursor, int T, int B) {
    int b = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (b < B) cursor[b] += T;
}
