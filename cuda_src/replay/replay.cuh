// What the replay's kernels share: counters, limits, and how threads share the copy of an encoding.
//
// Transitions lie in C slots (a power of two), structure of arrays, named store_*. Slots are written in a ring: head is
// the next one. Time: the clock counts environment steps of a row; a *moment* is a state (encoding, book, position)
// and is named by its clock value, its *birth*. States t = 0..T of an iteration that begins at clock c are births c + t.
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

#define COPY_LANES 8   // threads that share one transition; each moves a float4 of every COPY_STRIDE floats
#define COPY_VECTOR 4  // adjacent floats of a lane
#define COPY_STRIDE 32 // COPY_LANES * COPY_VECTOR

// This lane's part of to[HIDDEN_DIM] = from[HIDDEN_DIM]; neighbouring lanes move neighbouring floats.
static __device__ inline void copy_encoding(float* to, const float* from, int lane) {
    for (int k = lane * COPY_VECTOR; k < HIDDEN_DIM; k += COPY_STRIDE) {
        for (int v = 0; v < COPY_VECTOR; ++v) to[k + v] = from[k + v];
    }
}

// n of this iteration, from its slot: 1 to N_STEP_MAX.
static __device__ inline int n_step(const float* isv) {
    int n = (int)rintf(isv[ISV_N_STEP]);
    return n < 1 ? 1 : (n > N_STEP_MAX ? N_STEP_MAX : n);
}
