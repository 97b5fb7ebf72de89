// What the replay's kernels share: counters, limits, and how threads share the copy of an encoding.
//
// Transitions lie in C slots (a power of two), structure of arrays, named store_*. Slots are written in a ring: head is
// the next one. Time: the clock counts environment steps of a row; a *moment* is a state (encoding, book, position)
// and is named by its clock value, its *birth*. States t = 0..T of an iteration that begins at clock c: births c + t.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define N_STEP_MAX 32  // longest n-step window; size of the ring of pending moments, a power of two

// Elements of replay_state [8], uint32.
#define REPLAY_HEAD 0       // slot written next
#define REPLAY_SIZE 1       // live transitions
#define REPLAY_SYNTHETIC 2  // live transitions with a source other than SOURCE_REAL
#define REPLAY_START 3      // head before this iteration's push
#define REPLAY_PUSHED 4     // transitions pushed in this iteration
#define REPLAY_CLOCK 5      // environment steps of a row that have been pushed; rl_per_push adds T
#define REPLAY_INJECTED 6   // hindsight transitions written in this iteration, behind the pushed ones

#define SOURCE_REAL 0
#define SOURCE_BACKWARD 1
#define SOURCE_FORWARD 2

#define COPY_LANES 8  // threads that share one transition; each moves every COPY_LANES-th vector

// Four floats moved at once. Every row of encodings begins at a multiple of its size.
struct alignas(16) EncodingVector {
    float lane[4];
};

#define ENCODING_VECTORS (HIDDEN_DIM / 4)

// This lane's part of to[HIDDEN_DIM] = from[HIDDEN_DIM]; neighbouring lanes move neighbouring vectors.
static __device__ inline void copy_encoding(float* __restrict__ to, const float* __restrict__ from, int lane) {
    EncodingVector* out = (EncodingVector*)to;
    const EncodingVector* in = (const EncodingVector*)from;
    for (int k = lane; k < ENCODING_VECTORS; k += COPY_LANES) out[k] = in[k];
}

// n of this iteration, from its slot: 1 to N_STEP_MAX.
static __device__ inline int n_step(const float* isv) {
    int n = (int)rintf(isv[ISV_N_STEP]);
    return n < 1 ? 1 : (n > N_STEP_MAX ? N_STEP_MAX : n);
}
