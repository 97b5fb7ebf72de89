// The sum tree: per_tree [2C], root 1, children of k are 2k and 2k + 1, leaf of slot i is C + i; element 0 is unused.
//
// Every inner node is exactly the float sum left + right, so the order in which nodes are renewed cannot matter: full
// rebuild, touched paths and touched range give the same bits, and nothing drifts. Levels are renewed in bands of
// TREE_BAND: one thread owns a group, the subtree between depth `top` (its root) and depth `bottom`, whose nodes there
// are all up to date. It loads them once and writes everything above; it reads nothing that another thread writes.
#pragma once

#define TREE_BAND 5         // levels a thread renews
#define TREE_GROUP 32       // 2^TREE_BAND: nodes at the bottom of a group

// Renews group g (0 .. 2^top - 1) between depths bottom and top, 0 <= top < bottom <= top + TREE_BAND; returns the sum.
static __device__ inline float tree_renew_group(float* per_tree, int g, int bottom, int top) {
    int width = 1 << (bottom - top);
    const float* from = per_tree + (1 << bottom) + (long long)g * width;
    float node[TREE_GROUP];
    for (int j = 0; j < width; ++j) node[j] = from[j];
    for (int depth = bottom - 1; depth >= top; --depth) {
        width >>= 1;
        float* to = per_tree + (1 << depth) + (long long)g * width;
        for (int j = 0; j < width; ++j) {
            node[j] = node[2 * j] + node[2 * j + 1];
            to[j] = node[j];
        }
    }
    return node[0];
}
