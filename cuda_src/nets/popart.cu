// PopArt (van Hasselt 2016): running moments of the returns, and a value head whose outputs they do not change.
#include "nets/popart.cuh"

// rl_popart_update: moves the moments and rescales the value head so that sigma raw + mean stays what it was.
// launch: blocks 1, block 128
// updates: isv, w_v, b_v, w_v_ctx, nonfinite_parts
// One block. moments [6] of rl_advantage_statistics: the last three are mean and mean square of the returns, in scaled
// reward, and how many are not finite: nonfinite_parts[part]; with any, nothing changes. w_v [n_w], b_v [n_b], w_v_ctx
// [n_ctx] whole tensors: the rule is the same for every class.
//   w' = w s / s',  b' = (s b + m - m') / s';  moments move by POPART_BETA towards the batch's.
// Slots written: POPART_MEAN, POPART_SECOND_MOMENT. Read: POPART_BETA.
extern "C" __global__ void rl_popart_update(const float* moments, float* isv, float* w_v, float* b_v, float* w_v_ctx,
                                            int* nonfinite_parts, int part, int n_w, int n_b, int n_ctx) {
    popart_update_block(moments, isv, w_v, b_v, w_v_ctx, nonfinite_parts, part, n_w, n_b, n_ctx);
}
