// The order in which the threads of a block and the blocks of a launch run.
//
// A kernel may not depend on it: a result that changes between forward, reverse and random order is a race.
#pragma once

#include "abi.h"

#include <stdint.h>

namespace fh {

constexpr unsigned MAX_THREADS = 1024;

struct Order {
    int kind; // fh_order
    uint64_t seed;
    bool operator==(const Order& other) const { return kind == other.kind && seed == other.seed; }
};

// SplitMix64: any seed will do, 0 included.
inline uint64_t next_random(uint64_t& state) {
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

template <class T> void fill_order(T* out, unsigned count, Order order) {
    for (unsigned i = 0; i < count; ++i) out[i] = T(order.kind == FH_REVERSE ? count - 1 - i : i);
    if (order.kind != FH_RANDOM) return;
    uint64_t state = order.seed;
    for (unsigned i = count - 1; i > 0; --i) {
        const unsigned j = unsigned(next_random(state) % (i + 1));
        const T kept = out[i];
        out[i] = out[j];
        out[j] = kept;
    }
}

// The order in which the lanes of a warp continue after they met.
inline const uint8_t* lane_order(Order order) {
    static __thread uint8_t lanes[32];
    static __thread Order filled = {-1, 0};
    if (!(filled == order)) {
        fill_order(lanes, 32, order);
        filled = order;
    }
    return lanes;
}

// The i-th block to run of count.
inline long long block_at(long long i, long long count, Order order) {
    if (order.kind == FH_REVERSE) return count - 1 - i;
    if (order.kind != FH_RANDOM) return i;
    // A full walk: a step that shares no factor with count visits every block once.
    auto shares_factor = [&](uint64_t a) {
        for (uint64_t b = uint64_t(count), rest; b; b = rest) {
            rest = a % b;
            a = b;
        }
        return a != 1;
    };
    uint64_t state = order.seed;
    const uint64_t offset = next_random(state) % uint64_t(count);
    uint64_t step = next_random(state) % uint64_t(count) | 1;
    while (shares_factor(step)) step += 2;
    return (long long)((offset + (unsigned __int128)step * uint64_t(i)) % uint64_t(count));
}

} // namespace fh
