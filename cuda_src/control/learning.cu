// Controllers of the optimiser: learning rates, the balance of the losses, and the heads' weights when the atoms move.
// Rules they share are in controller.cuh. isv_seed [640] is the ISV as it was when the run started.
#include "control/learning.cuh"

// rl_controller_learning_rate: warm-up, decline, plateau and trust factor of every head. No blend: a schedule.
// rate = seed x warm-up x (1 -> LR_FINAL_SHARE, linear over RUN_STEPS) x 2^-halvings x min(1, 1 / gradient norm EMA), at
// least 1e-5; BCE and AUX: warm-up and decline only; IQN: the decline only.
// Updates of a head are those the optimisers applied: adam_step [2, 6]. plateau 0: no halving (state is kept all the same).
// lr_halvings [3] for Q, PI, V. Reads isv_seed LR_* and IQN_LR, LR_WARMUP_STEPS, LR_FINAL_SHARE, TRAIN_STEP, RUN_STEPS,
// IMPROVEMENT_THRESHOLD, PLATEAU_PATIENCE, LOSS_Q, LOSS_PI, LOSS_V, *_GRAD_NORM_EMA. Writes LR_BCE .. LR_AUX, IQN_LR and
// the plateau slots Q_LOSS_EMA .. V_LR_STEP.
// launch: threads 1, block 1
// updates: isv, lr_halvings
extern "C" __global__ void rl_controller_learning_rate(float* isv, const float* isv_seed, const unsigned int* adam_step,
                                                       unsigned int* lr_halvings, int plateau) {
    controller_learning_rate_thread(isv, isv_seed, adam_step, lr_halvings, plateau);
}

// rl_controller_loss_balance: every loss gets a say, whatever its unit.
// target = (1 / max(EMA |loss|, 0.05)) / mean of the same over the live losses, so the weights have mean 1; 0.1 .. 10.
// Losses: BCE; Q = C51 + IQN; PI; V; AUX = FRD + outcome. One that has not been measured keeps its weight.
// loss_abs_ema [3] for Q, PI, V. Reads LOSS_*. Writes LOSS_LAMBDA_BCE .. LOSS_LAMBDA_AUX, LOSS_BCE_EMA, LOSS_AUX_EMA.
// launch: threads 1, block 1
// updates: isv, controller_age, loss_abs_ema
extern "C" __global__ void rl_controller_loss_balance(float* isv, unsigned int* controller_age, float* loss_abs_ema) {
    controller_loss_balance_thread(isv, controller_age, loss_abs_ema);
}

#define ATOMS 21               // of the C51 head
#define OUTSIDE_PENALTY 1.0f   // nats per old atom beyond the old span

// values[ATOMS] at new atoms: linear between the old atoms' values, the end's value outside, less penalty x distance.
// first: where the first new atom lies, pitch: distance of new atoms; both counted in old atoms.
static __device__ inline void resample_atoms(float* values, float first, float pitch, float penalty) {
    float old[ATOMS];
    for (int i = 0; i < ATOMS; ++i) old[i] = values[i];
    for (int j = 0; j < ATOMS; ++j) {
        const float at = fmaf(pitch, (float)j, first), inside = clampf(at, 0.0f, (float)(ATOMS - 1));
        const int left = clampi((int)inside, 0, ATOMS - 2);
        const float value = ema(old[left], old[left + 1], inside - (float)left);
        values[j] = fmaf(-penalty, fabsf(at - inside), value);
    }
}

// rl_atom_span_reproject: when the atom span has grown, the distributions stay where they were.
// A head's logits are linear in its weights, so logits interpolated at the new atoms are the same interpolation of the
// weights: exact for every encoding at once. Density over value is kept where the old span reaches; outside the old end
// atom's logit falls by one nat an old atom. Sigma weights follow without that fall. Both heads.
// w_c51, sw_c51 and their target copies [128, pairs, 21]; b_c51, sb_c51 and theirs [pairs, 21]; pairs = P*11;
// atom_span_before [2] = old V_MIN, V_MAX. One thread a (row of weights or bias, pair), which owns its 21 columns.
// Adam's moments stay: they forget within some updates. Span unchanged: nothing is touched. Reads C51_V_MIN, C51_V_MAX.
// launch: threads (HIDDEN_DIM+1)*P*N_ACTIONS, block 64
// updates: w_c51, b_c51, sw_c51, sb_c51, target_w_c51, target_b_c51, target_sw_c51, target_sb_c51
extern "C" __global__ void rl_atom_span_reproject(const float* isv, const float* atom_span_before, float* w_c51,
                                                  float* b_c51, float* sw_c51, float* sb_c51, float* target_w_c51,
                                                  float* target_b_c51, float* target_sw_c51, float* target_sb_c51,
                                                  int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int pairs = P * N_ACTIONS, row = i / pairs;
    const float old_min = atom_span_before[0], old_max = atom_span_before[1];
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    if (row > HIDDEN_DIM || (v_min == old_min && v_max == old_max)) return;
    const float last = (float)(ATOMS - 1), per_value = last / (old_max - old_min);
    const float first = (v_min - old_min) * per_value, pitch = (v_max - v_min) * per_value / last;
    if (row == HIDDEN_DIM) {
        const int at = (i - row * pairs) * ATOMS;
        resample_atoms(b_c51 + at, first, pitch, OUTSIDE_PENALTY);
        resample_atoms(target_b_c51 + at, first, pitch, OUTSIDE_PENALTY);
        resample_atoms(sb_c51 + at, first, pitch, 0.0f);
        resample_atoms(target_sb_c51 + at, first, pitch, 0.0f);
        return;
    }
    const long long at = (long long)i * ATOMS;
    resample_atoms(w_c51 + at, first, pitch, 0.0f);
    resample_atoms(target_w_c51 + at, first, pitch, 0.0f);
    resample_atoms(sw_c51 + at, first, pitch, 0.0f);
    resample_atoms(target_sw_c51 + at, first, pitch, 0.0f);
}
