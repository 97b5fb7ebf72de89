// The rollout in one kernel: the policy's draws. See rollout.cuh.
#include "fused/rollout.cuh"
#include "nets/policy.cuh"

#define FULL_WARP 0xffffffffu
#define LOGITS_AHEAD 4  // of the next step, by a lane

// The logits of a row's next step without bias, of all its classes, while this step is played: which class it will be in
// is not known yet. A lane has every `lanes`-th; where they are more than the lanes hold, each is read when it is due.
struct LogitsAhead {
    float v[LOGITS_AHEAD];
    int first, own, lanes, count;  // first lane of the row, this lane among the row's, how many (16 or 32), logits of a step

    __device__ inline bool fits() const { return count <= LOGITS_AHEAD * lanes; }

    __device__ inline void fetch(const float* pi_row, bool real) {
#pragma unroll
        for (int j = 0; j < LOGITS_AHEAD; ++j) {
            const int i = own + j * lanes;
            v[j] = real && fits() && i < count ? pi_row[i] : 0.0f;
        }
    }

    // Logit `column` of the step that was fetched; all lanes of the warp call.
    __device__ inline float at(const float* pi_row, int column, bool real) const {
        if (!fits()) return real ? pi_row[column] : 0.0f;
        const int lane = first + (column & (lanes - 1)), place = column >> (lanes == 32 ? 5 : 4);
        float found = 0.0f;
#pragma unroll
        for (int j = 0; j < LOGITS_AHEAD; ++j) {
            const float other = __shfl_sync(FULL_WARP, v[j], lane);
            found = place == j ? other : found;
        }
        return found;
    }
};

// softmax(logits) of a row whose lane a has logit a, for all lanes of the row: the bits of policy_softmax.
static __device__ inline void policy_softmax_by_lanes(float logit, int first, float* soft) {
    float all[N_ACTIONS], sum = 0.0f;
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) all[a] = __shfl_sync(FULL_WARP, logit, first + a);
    const float own = expf(logit - policy_top(all));
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) sum += __shfl_sync(FULL_WARP, own, first + a);
    const float share = own / sum;
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) soft[a] = __shfl_sync(FULL_WARP, share, first + a);
}

// rl_rollout_policy: all T environment steps of a row, each drawn from the policy.
// launch: threads B*lanes, block 32
// chain: 2.2*T us
// A row has a warp, or half of one (lanes 16, else 32) where there are more rows than warps fit on a GPU: rows take
// different ways, and would wait for each other. Its first lane plays; an action's logit and share of the softmax are a
// lane's each, which together were two fifths of a step.
// Parameters are those of the kernels that it stands for, with all T steps. greedy as in rl_pi_action_kernel.
// fuses: rl_pi_action_kernel, rl_action_begin, rl_min_hold_check, rl_trail_mutate, rl_trail_stop_check
// fuses: rl_drawdown_stop, rl_heat_cap, actions_to_market_targets, lobsim_fill, extract_realized_pnl_delta
// fuses: rl_unit_state_update, rl_trade_context_update, rl_recent_outcome_update
// updates: position_lots, entry_basis, cash_ticks, fee_sides, trade_pnl_usd, trade_open_step, trade_lots_max
// updates: trade_best_mid, trade_entry_mid, steps_since_close, pending_target, pending_steps, outcome_ema, unit_entry
// updates: unit_best_mid, unit_age, unit_lots, unit_initial_r, unit_trail, unit_marked, context, rng_action
extern "C" __global__ void rl_rollout_policy(
    const float* __restrict__ pi_all, const float* __restrict__ b_pi, const float* __restrict__ w_pi_ctx,
    const int* __restrict__ cursor, const int* __restrict__ episode_end, const float* __restrict__ bid_px,
    const float* __restrict__ bid_sz, const float* __restrict__ ask_px, const float* __restrict__ ask_sz,
    const float* __restrict__ regime, const float* __restrict__ isv, unsigned int* __restrict__ rng_action,
    signed char* __restrict__ action_drawn, float* __restrict__ log_prob, int* __restrict__ position_lots,
    double* __restrict__ entry_basis, long long* __restrict__ cash_ticks, long long* __restrict__ fee_sides,
    float* __restrict__ trade_pnl_usd, int* __restrict__ trade_open_step, int* __restrict__ trade_lots_max,
    float* __restrict__ trade_best_mid, float* __restrict__ trade_entry_mid, int* __restrict__ steps_since_close,
    int* __restrict__ pending_target, int* __restrict__ pending_steps, float* __restrict__ outcome_ema,
    float* __restrict__ unit_entry, float* __restrict__ unit_best_mid, int* __restrict__ unit_age,
    int* __restrict__ unit_lots, float* __restrict__ unit_initial_r, float* __restrict__ unit_trail,
    unsigned char* __restrict__ unit_marked, float* __restrict__ entry_vwap, float* __restrict__ realised_usd,
    float* __restrict__ fees_usd, float* __restrict__ equity_usd, float* __restrict__ context,
    int* __restrict__ position_class, signed char* __restrict__ action, unsigned char* __restrict__ override_reason,
    unsigned char* __restrict__ overridden, float* __restrict__ unrealised_usd, int* __restrict__ held_steps,
    int* __restrict__ market_target, int* __restrict__ position_before, int* __restrict__ fill_lots,
    long long* __restrict__ fill_price_lots, long long* __restrict__ fill_close_price_lots,
    float* __restrict__ fill_vwap, float* __restrict__ fill_cost_usd, int* __restrict__ unfilled_lots,
    int* __restrict__ position_after, float* __restrict__ realised_delta_usd, float* __restrict__ pnl_step_usd,
    unsigned char* __restrict__ closed, unsigned char* __restrict__ terminal, unsigned char* __restrict__ truncated,
    float* __restrict__ closed_trade_pnl_usd, int* __restrict__ closed_trade_steps, int* __restrict__ closed_trade_lots,
    float* __restrict__ closed_excursion_usd, int latency, float tick_value_usd, float fee_usd, int lot_limit,
    int ratchet, int since_close, int realised_reward, int greedy, int lanes, int P, int T, int B) {
    const int own = threadIdx.x % lanes, first = threadIdx.x - own;
    const int number = (blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    const bool real = number < B, plays = real && own == 0;
    const int b = real ? number : B - 1;
    const Environment env = ROLLOUT_ENVIRONMENT;
    const Rules rules = ROLLOUT_RULES;
    RolloutRow row = rollout_load(env, 0, B, b);
    unsigned int rng = rng_action[b];
    const float p_min = isv[ISV_P_MIN];
    const int width = P * N_ACTIONS;
    LogitsAhead ahead = {{}, first, own, lanes, width};
    ahead.fetch(pi_all + (long long)b * width, real);
    for (int t = 0; t < T; ++t) {
        const long long at = (long long)t * B + b;
        const BestPrices next = book_best(bid_px, ask_px, row.cursor + t + 1);
        float held[HEAD_CONTEXT_DIM], soft[N_ACTIONS];
#pragma unroll
        for (int c = 0; c < HEAD_CONTEXT_DIM; ++c) held[c] = __shfl_sync(FULL_WARP, row.context[c], first);
        const int block = __shfl_sync(FULL_WARP, head_block(row.account.position + lot_limit, P), first) * N_ACTIONS;
        const int column = block + (own < N_ACTIONS ? own : 0);
        const float pi = ahead.at(pi_all + at * width, column, real);
        policy_softmax_by_lanes(policy_logit(pi, b_pi, w_pi_ctx, held, column, width), first, soft);
        ahead.fetch(pi_all + (at + B) * width, real && t + 1 < T);
        if (!plays) continue;
        const PolicyDraw draw = policy_draw(soft, p_min, &rng, greedy != 0);
        action_drawn[at] = (signed char)draw.action;
        log_prob[at] = draw.log_prob;
        rollout_step(env, rules, &row, next, draw.action, t, b);
    }
    if (!plays) return;
    rng_action[b] = rng;
    rollout_store(env, rules, row, b);
}
