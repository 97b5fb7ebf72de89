// What hindsight adds to the replay behind an iteration's moments: candidates, then their transitions.
#include "hindsight/decide.cuh"
#include "hindsight/inject.cuh"
#include "include/last_block.cuh"

#define STORE_STEPS 32  // steps of a tile of PUSH_ROWS rows
#define INJECT_AHEAD 4  // candidates that a thread looks at before it copies one

// Numbers the candidates of a tile within their direction and step: `steps` steps from t0 on, `here` rows from `first`
// on. All threads of the block; the caller waits for them.
static __device__ inline void number_tile(const unsigned char (*fires)[STORE_STEPS * PUSH_ROWS], int* numbers,
                                          int* injected_base, unsigned char* candidate_fire, int* injected_at, int steps,
                                          int first, int here, int t0, int T, int B) {
    for (int i = threadIdx.x; i < 2 * STORE_STEPS; i += blockDim.x) {  // a thread a direction and step
        const int way = i / STORE_STEPS, step = i % STORE_STEPS;
        if (step >= steps) continue;
        injected_base[(way * T + t0 + step) * gridDim.x + blockIdx.x] =
            number_candidates(fires[way] + step * PUSH_ROWS, numbers + i * (PUSH_ROWS + 1), PUSH_ROWS);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * STORE_STEPS * PUSH_ROWS; i += blockDim.x) {
        const int way = i / (STORE_STEPS * PUSH_ROWS), own = i % (STORE_STEPS * PUSH_ROWS), r = own % PUSH_ROWS;
        if (own >= steps * PUSH_ROWS || r >= here) continue;
        const long long at = (long long)(way * T + t0 + own / PUSH_ROWS) * B + first + r;
        candidate_fire[at] = fires[way][own];
        injected_at[at] = numbers[i / PUSH_ROWS * (PUSH_ROWS + 1) + r];
    }
}

// rl_store_candidates: which transitions hindsight adds, and their numbers.
// launch: blocks (B + 31) // 32, block 1024
// chain: 1.0*T us
// updates: her_peak_slot, event_peak_slot, closed_valid, closed_entry, closed_birth, closed_side, closed_lots
// updates: closed_pnl, closed_slot, closed_held, closed_after, closed_action, closed_next, injected_base, replay_state
// updates: isv, blocks_done
// fuses: rl_hindsight_note, rl_hindsight_peak, rl_hindsight_forward, rl_hindsight_inject
// A block has 32 rows, a warp each, and takes a tile of 32 steps at a time: first a thread a step looks at its record
// (backward); then one thread of the warp walks over the steps in which something happens to the row's closed ring
// (forward; rows wait for memory side by side); then a thread a step numbers the candidates of all rows. The last block
// to finish adds up what stands in front of each step's candidates. Parameters are those of the kernels that it stands
// for; backward, forward: `enabled` of either direction.
extern "C" __global__ void __launch_bounds__(1024) rl_store_candidates(
    const unsigned char* push_pending, const unsigned char* push_count, const int* push_offset, const int* push_base,
    const int* her_mids, const unsigned int* her_peak_birth, const unsigned char* __restrict__ event,
    const float* event_entry, const float* event_peak, const int* event_side, const int* event_lots,
    const float* event_pnl, const unsigned int* event_peak_birth, const int* cursor, const float* bid_px,
    const float* ask_px, const int* position_before, const int* position_after, const signed char* action,
    const unsigned int* store_birth, const unsigned int* store_row, const unsigned char* store_source,
    unsigned int* her_peak_slot, unsigned int* event_peak_slot, unsigned char* closed_valid, float* closed_entry,
    unsigned int* closed_birth, int* closed_side, int* closed_lots, float* closed_pnl, unsigned int* closed_slot,
    int* closed_held, int* closed_after, signed char* closed_action, unsigned int* closed_next,
    unsigned char* candidate_fire, float* candidate_usd, unsigned int* candidate_birth, unsigned int* candidate_slot,
    int* candidate_n, signed char* candidate_lots, signed char* candidate_action, int* candidate_state,
    int* injected_at, int* injected_base, unsigned int* replay_state, float* isv, unsigned int* blocks_done,
    int backward, int forward, float tick_value_usd, float fee_usd, int C, int T, int B) {
    __shared__ bool last;
    __shared__ unsigned char fires[2][STORE_STEPS * PUSH_ROWS];
    __shared__ int numbers[2 * STORE_STEPS * (PUSH_ROWS + 1)];
    __shared__ unsigned int slots[PUSH_ROWS * STORE_STEPS];  // of the moments behind closes
    __shared__ ClosedRing rings[PUSH_ROWS];
    const int lane = threadIdx.x % STORE_STEPS, row = threadIdx.x / STORE_STEPS;
    const int first = blockIdx.x * PUSH_ROWS, here = B - first < PUSH_ROWS ? B - first : PUSH_ROWS, b = first + row;
    const bool lives = row < here;
    const unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    const float lookahead = isv[ISV_HINDSIGHT_FORWARD_LOOKAHEAD];
    ClosedRing* ring = rings + row;
    if (lives && lane < CLOSED_RING) {
        note_closed(push_pending, push_count, push_offset, push_base, replay_state, closed_valid, closed_birth,
                    closed_slot, C, T, B, b, lane);
    } else if (lives && lane == CLOSED_RING) {
        note_trade(push_pending, push_count, push_offset, push_base, replay_state, her_mids, her_peak_birth,
                   her_peak_slot, C, T, B, b);
    } else if (lives && lane == CLOSED_RING + 1) {
        *ring = closed_ring(closed_valid, closed_birth, closed_next, b);
    }
    for (int t0 = 0; t0 < T; t0 += STORE_STEPS) {
        // Backward: a thread a step.
        const int steps = T - t0 < STORE_STEPS ? T - t0 : STORE_STEPS, t = t0 + lane;
        const bool closes = lives && lane < steps && event[(long long)t * B + b] != 0;
        const unsigned int closed_steps = warp_ballot(closes);
        unsigned char fire = FIRE_NO;
        if (closes) {
            note_event(push_pending, push_count, push_offset, push_base, replay_state, event_peak_birth,
                       event_peak_slot, C, T, B, b, (long long)t * B + b);
            slots[row * STORE_STEPS + lane] =
                pushed_slot(push_pending, push_count, push_offset, push_base, replay_state,
                            clock + (unsigned int)t + 1u, NO_SLOT, C, T, B, b);
            if (backward) {
                fire = hindsight_peak_event(event_entry, event_peak, event_side, event_lots, event_pnl,
                                            event_peak_birth, event_peak_slot, position_before, action, store_birth,
                                            store_row, store_source, replay_state, isv, candidate_usd, candidate_birth,
                                            candidate_slot, candidate_n, candidate_lots, candidate_action,
                                            candidate_state, tick_value_usd, fee_usd, C, T, B, t, b);
            }
        }
        fires[0][lane * PUSH_ROWS + row] = fire;
        fires[1][lane * PUSH_ROWS + row] = FIRE_NO;
        __syncthreads();

        // Forward: one thread a row, steps ascending, because the ring passes from step to step.
        for (int i = 0; lives && lane == 0 && i < steps; ++i) {
            const bool ends = closed_steps >> i & 1u;
            if (!ends && !ring_ripe(*ring, clock + (unsigned int)(t0 + i) + 1u, lookahead)) continue;
            fires[1][i * PUSH_ROWS + row] = hindsight_forward_step(
                cursor, bid_px, ask_px, event_entry, event_side, event_lots, event_pnl, position_before, position_after,
                action, store_birth, store_row, store_source, replay_state, isv, closed_valid, closed_entry,
                closed_birth, closed_side, closed_lots, closed_pnl, closed_slot, closed_held, closed_after,
                closed_action, candidate_usd, candidate_birth, candidate_slot, candidate_n, candidate_lots,
                candidate_action, candidate_state, ends, ends ? slots[row * STORE_STEPS + i] : NO_SLOT, ring, forward,
                tick_value_usd, fee_usd, clock, lookahead, C, T, B, t0 + i, b);
        }
        __syncthreads();

        number_tile(fires, numbers, injected_base, candidate_fire, injected_at, steps, first, here, t0, T, B);
        __syncthreads();
    }
    if (lives && lane == 0) closed_next[b] = ring->next;
    if (!is_last_block(blocks_done, &last)) return;
    hindsight_inject_finish(store_source, injected_base, replay_state, isv, C, T, B);
}

// rl_store_injections: the transitions of hindsight into their slots, and the encodings that later iterations need.
// launch: blocks B, block 128
// updates: her_peak_h, closed_h, store_h, store_next_h, store_index, store_n, store_lots, store_next_lots, store_action
// updates: store_return, store_discount, store_terminal, store_source, store_birth, store_row, per_tree
// fuses: rl_hindsight_copy, rl_hindsight_keep
// One block a row: kept encodings are read before new ones take their places. Parameters are those of the kernels that it
// stands for.
extern "C" __global__ void rl_store_injections(
    const int* injected_at, const int* injected_base, const float* candidate_usd, const unsigned int* candidate_birth,
    const unsigned int* candidate_slot, const int* candidate_n, const signed char* candidate_lots,
    const signed char* candidate_action, const int* candidate_state, const int* cursor, const float* h,
    const int* position_after, const unsigned int* replay_state, const int* her_mids,
    const unsigned int* her_peak_birth, const unsigned char* closed_valid, const unsigned int* closed_birth,
    const float* isv, float* her_peak_h, float* closed_h, float* store_h, float* store_next_h,
    unsigned int* store_index, unsigned short* store_n, signed char* store_lots, signed char* store_next_lots,
    signed char* store_action, float* store_return, float* store_discount, unsigned char* store_terminal,
    unsigned char* store_source, unsigned int* store_birth, unsigned int* store_row, float* per_tree, int C, int T,
    int B) {
    const int b = blockIdx.x, lane = threadIdx.x % COPY_LANES, first = threadIdx.x / COPY_LANES;
    const int step = blockDim.x / COPY_LANES;
    for (int t0 = first; t0 < 2 * T; t0 += INJECT_AHEAD * step) {
        bool injects[INJECT_AHEAD];
#pragma unroll
        for (int k = 0; k < INJECT_AHEAD; ++k) {
            const int t = t0 + k * step;
            injects[k] = t < 2 * T && injected_at[(long long)t * B + b] != NOT_INJECTED;
        }
#pragma unroll
        for (int k = 0; k < INJECT_AHEAD; ++k) {
            if (!injects[k]) continue;
            hindsight_copy_item(injected_at, injected_base, candidate_usd, candidate_birth, candidate_slot, candidate_n,
                                candidate_lots, candidate_action, candidate_state, cursor, h, her_peak_h, closed_h,
                                position_after, replay_state, isv, store_h, store_next_h, store_index, store_n,
                                store_lots, store_next_lots, store_action, store_return, store_discount, store_terminal,
                                store_source, store_birth, store_row, per_tree, C, T, B, (t0 + k * step) * B + b, lane);
        }
    }
    __syncthreads();
    for (int j = first; j <= CLOSED_RING; j += step) {
        hindsight_keep_item(h, replay_state, her_mids, her_peak_birth, closed_valid, closed_birth, her_peak_h, closed_h,
                            T, B, b, j, lane);
    }
}
