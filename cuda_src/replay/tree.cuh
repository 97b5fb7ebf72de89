// The sum tree: per_tree [2C], root 1, children of k are 2k and 2k + 1, leaf of slot i is C + i; element 0 is unused.
//
// Every inner node is exactly the float sum left + right, so the order in which nodes are renewed cannot matter: full
// rebuild, touched paths and touched range give the same bits, and nothing drifts. Levels are renewed in bands of
// TREE_BAND: one thread owns a group, the subtree between depth `top` (its root) and depth `bottom`, whose nodes there
// are all up to date. It loads them once and writes everything above; it reads nothing that another thread writes.
#pragma once
#include "replay/replay.cuh"

#define TREE_BAND 5         // levels a thread renews
#define TREE_GROUP 32       // 2^TREE_BAND: nodes at the bottom of a group
#define UNIFORM_SCALE 2.3283064365386963e-10  // 2^-32

// Four nodes moved at once; four at the bottom of a group begin at a multiple of their size.
struct alignas(16) TreeNodes {
    float node[4];
};

// Nodes of group g above the 2 WIDTH in hand, up to one; `level`: first node of the depth that has WIDTH of them.
template <int WIDTH>
static __device__ inline void tree_join(float* node, float* per_tree, int level, int g) {
    float* to = per_tree + level + (long long)g * WIDTH;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) node[j] = node[2 * j] + node[2 * j + 1];
    if constexpr (WIDTH >= 4) {
#pragma unroll
        for (int j = 0; j < WIDTH / 4; ++j) {
            ((TreeNodes*)to)[j] = {{node[4 * j], node[4 * j + 1], node[4 * j + 2], node[4 * j + 3]}};
        }
    } else {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) to[j] = node[j];
    }
    if constexpr (WIDTH > 1) tree_join<WIDTH / 2>(node, per_tree, level / 2, g);
}

// Renews the group g whose bottom are WIDTH nodes of depth `bottom`; returns the sum.
template <int WIDTH>
static __device__ inline float tree_renew_width(float* per_tree, int g, int bottom) {
    float node[WIDTH];
    const float* from = per_tree + (1 << bottom) + (long long)g * WIDTH;
    if constexpr (WIDTH >= 4) {
#pragma unroll
        for (int j = 0; j < WIDTH / 4; ++j) {
            const TreeNodes four = ((const TreeNodes*)from)[j];
#pragma unroll
            for (int k = 0; k < 4; ++k) node[4 * j + k] = four.node[k];
        }
    } else {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) node[j] = from[j];
    }
    tree_join<WIDTH / 2>(node, per_tree, (1 << bottom) / 2, g);
    return node[0];
}

// Renews group g (0 .. 2^top - 1) between depths bottom and top, 0 <= top < bottom <= top + TREE_BAND; returns the sum.
static __device__ inline float tree_renew_group(float* per_tree, int g, int bottom, int top) {
    switch (bottom - top) {
        case 1:
            return tree_renew_width<2>(per_tree, g, bottom);
        case 2:
            return tree_renew_width<4>(per_tree, g, bottom);
        case 3:
            return tree_renew_width<8>(per_tree, g, bottom);
        case 4:
            return tree_renew_width<16>(per_tree, g, bottom);
        default:
            return tree_renew_width<TREE_GROUP>(per_tree, g, bottom);
    }
}

// Place of sample r of R in the mass `total`: a random one within its stratum. In double, since a float cannot tell 2^22
// leaves apart.
static __device__ inline double tree_stratum(unsigned int random, int r, int R, float total) {
    return ((double)r + UNIFORM_SCALE * (double)random) / (double)R * (double)total;
}

// Whether the mass u lies under the left of two children. A child without mass is never entered, whatever rounding did
// to u: a positive node has a positive child, so a walk ends in a positive leaf. Monotone in u, and so is u - left for
// those that go right: of two walks the one with the larger u never ends before the other.
static __device__ inline bool tree_goes_left(float left, float right, double u) {
    return !(right > 0.0f) || (left > 0.0f && u < (double)left);
}

// Renews the i-th group of a band above the slots written in this iteration, counted from that of slot REPLAY_START around
// the end of the ring; nothing where there are fewer.
static __device__ inline void tree_renew_written(const unsigned int* replay_state, float* per_tree, int i, int depth,
                                                 int bottom, int top) {
    unsigned int start = replay_state[REPLAY_START], below = (1u << (depth - top)) - 1u;
    unsigned int count = replay_state[REPLAY_PUSHED] + replay_state[REPLAY_INJECTED];
    unsigned int touched = ((start & below) + count + below) >> (depth - top);
    if (count == 0u || (unsigned int)i >= touched) return;
    unsigned int g = ((start >> (depth - top)) + (unsigned int)i) & ((1u << top) - 1u);
    tree_renew_group(per_tree, (int)g, bottom, top);
}
