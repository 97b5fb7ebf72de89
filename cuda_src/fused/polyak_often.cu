// Target copies that nothing reads while the critic updates: all moves of an iteration in one pass.
#include "generated/isv_slots.cuh"
#include "include/eight.cuh"
#include "include/math.cuh"

#define CHUNK 32  // parameters of one entry of target_chunk (nets/params.py)

// rl_polyak_often: target += tau (online - target), `times` times over, to the bit what as many rl_polyak leave.
// launch: threads n_target_chunks*4, block 128
// updates: target_params
// fuses: rl_polyak
// One thread eight elements; mapping and parameters are those of rl_polyak. Slots read: TARGET_TAU.
extern "C" __global__ void rl_polyak_often(const float* params, const int* target_chunk, const float* isv,
                                           float* target_params, int n_target_chunks, int times) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, chunk = i / (CHUNK / EIGHT);
    if (chunk >= n_target_chunks) return;
    const int within = i % (CHUNK / EIGHT) * EIGHT;
    const eight online = eight_load(params + (long long)target_chunk[chunk] * CHUNK + within);
    const eight tau = eight_of(isv[ISV_TARGET_TAU]);
    eight target = eight_load(target_params + (long long)i * EIGHT);
    for (int move = 0; move < times; ++move) target = eight_fma(tau, online - target, target);
    eight_store(target_params + (long long)i * EIGHT, target);
}
