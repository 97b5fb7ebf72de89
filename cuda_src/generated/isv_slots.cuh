// Generated from foxhunt_cli/isv/slots.toml by foxhunt_cli/isv/header.py: do not edit.
#pragma once
// layout f8053c54abd7d609
#define ISV_SIZE 640
#define ISV_GAMMA 400  // control, 1: discount per environment step
#define ISV_TARGET_TAU 401  // control, 1: Polyak rate of the target networks
#define ISV_PPO_CLIP_EPS 402  // control, 1: PPO clip
#define ISV_ENTROPY_COEF 403  // control, 1: weight of the policy entropy bonus
#define ISV_ROLLOUT_STEPS 404  // control, 1: passes over the on-policy batch = round(slot / 2048), 1 to 4
#define ISV_PER_ALPHA 405  // control, 1: priority exponent
#define ISV_REWARD_SCALE 406  // control, 1/USD: USD to the learner's reward
#define ISV_LOSS_LAMBDA_BCE 407  // control, 1: weight of the BCE loss
#define ISV_LOSS_LAMBDA_Q 408  // control, 1: weight of the Q loss
#define ISV_LOSS_LAMBDA_PI 409  // control, 1: weight of the PI loss
#define ISV_LOSS_LAMBDA_V 410  // control, 1: weight of the V loss
#define ISV_LOSS_LAMBDA_AUX 411  // control, 1: weight of the AUX loss
#define ISV_LR_BCE 412  // control, 1: learning rate of the BCE group
#define ISV_LR_Q 413  // control, 1: learning rate of the Q group
#define ISV_LR_PI 414  // control, 1: learning rate of the PI group
#define ISV_LR_V 415  // control, 1: learning rate of the V group
#define ISV_LR_AUX 416  // control, 1: learning rate of the AUX group
#define ISV_MEAN_TRADE_DURATION_EMA 417  // signal, steps: environment steps a closed trade was open
#define ISV_Q_DIVERGENCE_EMA 418  // signal, 1: norm of W - W_target over norm of W of the C51 head
#define ISV_KL_PI_EMA 419  // signal, nats: mean(log pi_old - log pi_new)
#define ISV_ENTROPY_OBSERVED_EMA 420  // signal, nats: entropy of the policy that is sampled from
#define ISV_ADVANTAGE_VAR_RATIO_EMA 421  // signal, 1: variance over |mean| of the advantages, streaming
#define ISV_TD_KURTOSIS_EMA 422  // signal, 1: Pearson kurtosis of TD errors, streaming
#define ISV_MEAN_ABS_PNL_EMA 423  // signal, USD: mean |PnL| of closed trades
#define ISV_Q_GRAD_NORM_EMA 424  // signal, 1: L2 norm of the Q head's weight gradient
#define ISV_PI_GRAD_NORM_EMA 425  // signal, 1: L2 norm of the PI head's weight gradient
#define ISV_V_GRAD_NORM_EMA 426  // signal, 1: L2 norm of the V head's weight gradient
#define ISV_Q_LOSS_EMA 427  // signal, 1: Q: EMA of the loss
#define ISV_Q_LOSS_BEST 428  // signal, 1: Q: best loss EMA so far
#define ISV_Q_PLATEAU_COUNT 429  // signal, 1: Q: updates without improvement
#define ISV_Q_LR_STEP 430  // signal, 1: Q: updates done
#define ISV_PI_LOSS_EMA 431  // signal, 1: PI: EMA of the loss
#define ISV_PI_LOSS_BEST 432  // signal, 1: PI: best loss EMA so far
#define ISV_PI_PLATEAU_COUNT 433  // signal, 1: PI: updates without improvement
#define ISV_PI_LR_STEP 434  // signal, 1: PI: updates done
#define ISV_V_LOSS_EMA 435  // signal, 1: V: EMA of the loss
#define ISV_V_LOSS_BEST 436  // signal, 1: V: best loss EMA so far
#define ISV_V_PLATEAU_COUNT 437  // signal, 1: V: updates without improvement
#define ISV_V_LR_STEP 438  // signal, 1: V: updates done
#define ISV_Q_PI_AGREE_EMA 439  // diag, 1: share of rows where argmax E[Q] = argmax pi
#define ISV_PPO_RATIO_CLAMP_MAX 440  // control, 1: probability ratio is kept in [1/max, max]
#define ISV_PPO_LOG_RATIO_ABS_MAX 441  // diag, nats: max |log pi_new - log pi_old| of the iteration
#define ISV_ADV_VAR_STREAM_MEAN 442  // signal, 1: streaming mean of advantages
#define ISV_ADV_VAR_STREAM_M2 443  // signal, 1: streaming variance of advantages
#define ISV_TD_KURT_STREAM_MEAN 444  // signal, 1: streaming mean of TD errors
#define ISV_TD_KURT_STREAM_M2 445  // signal, 1: streaming second central moment of TD errors
#define ISV_TD_KURT_STREAM_M4 446  // signal, 1: streaming fourth central moment of TD errors
#define ISV_ADV_VAR_RATIO_CLAMP 447  // tunable, 1: ceiling of ADVANTAGE_VAR_RATIO_EMA
#define ISV_TD_KURTOSIS_CLAMP 448  // tunable, 1: ceiling of TD_KURTOSIS_EMA
#define ISV_V_TARGET_CLAMP 449  // tunable, 1: bound of |value target|
#define ISV_REWARD_CLIP_RATE_EMA 450  // signal, 1: share of rewards that the clamp changed
#define ISV_REWARD_SCALED_ABS_MAX 451  // diag, 1: max |scaled reward| before the clamp
#define ISV_REWARD_CLAMP_WIN 452  // control, 1: upper reward clamp
#define ISV_REWARD_CLAMP_LOSS 453  // control, 1: lower reward clamp (a positive number)
#define ISV_KL_TARGET 454  // tunable, nats: KL the clip controller aims at
#define ISV_IMPROVEMENT_THRESHOLD 455  // tunable, 1: a loss below best x this is an improvement
#define ISV_PLATEAU_PATIENCE 456  // tunable, updates: updates without improvement before the rate halves
#define ISV_DIV_TARGET 457  // tunable, 1: target of Q_DIVERGENCE_EMA
#define ISV_ENTROPY_TARGET_FRAC 458  // tunable, 1: target entropy as a share of ln 11
#define ISV_KURT_LIFT_SCALE 459  // tunable, 1: excess kurtosis that lifts PER alpha to its top
#define ISV_PPO_CLAMP_MARGIN 460  // tunable, 1: ratio clamp = (1 + eps) x margin
#define ISV_LR_WARMUP_STEPS 461  // tunable, updates: updates of linear warm-up
#define ISV_LOSS_TOTAL 462  // signal, 1: this iteration's total loss
#define ISV_LOSS_Q 463  // signal, 1: this iteration's q loss
#define ISV_LOSS_IQN 464  // signal, 1: this iteration's iqn loss
#define ISV_LOSS_PI 465  // signal, 1: this iteration's pi loss
#define ISV_LOSS_V 466  // signal, 1: this iteration's v loss
#define ISV_LOSS_FRD 467  // signal, 1: this iteration's frd loss
#define ISV_LOSS_OUTCOME 468  // signal, 1: this iteration's outcome loss
#define ISV_LOSS_BCE 469  // signal, 1: this iteration's bce loss
#define ISV_LOSS_DISTILL 470  // signal, 1: this iteration's distill loss
#define ISV_ADV_ABS_MEAN 471  // diag, 1: mean |advantage| before normalisation
#define ISV_Q_TARGET_MAX 472  // signal, 1: largest Q target of the iteration
#define ISV_Q_TARGET_MIN 473  // signal, 1: smallest Q target of the iteration
#define ISV_Q_TARGET_CLIP_RATE 474  // signal, 1: share of target mass clipped by the atom span
#define ISV_GAE_LAMBDA 475  // tunable, 1: lambda of generalised advantage estimation
#define ISV_RUN_STEPS 476  // tunable, steps: length of the run; ends the beta schedule
#define ISV_HINDSIGHT_SKIPPED 477  // diag, 1: injections skipped this iteration
#define ISV_POS_SCALED_MAX 478  // signal, 1: max positive scaled reward of the iteration
#define ISV_POS_SCALED_MAX_EMA 479  // signal, 1: sparse EMA of POS_SCALED_MAX
#define ISV_REWARD_CLAMP_MARGIN 480  // tunable, 1: WIN clamp over the positive EMA
#define ISV_REWARD_CLAMP_RATIO 481  // tunable, 1: upper bound of LOSS/WIN
#define ISV_NEG_SCALED_MAX 482  // signal, 1: max |negative scaled reward| of the iteration
#define ISV_NEG_SCALED_MAX_EMA 483  // signal, 1: sparse EMA of NEG_SCALED_MAX
#define ISV_C51_V_MAX 484  // control, 1: upper end of the atoms
#define ISV_C51_V_MIN 485  // control, 1: lower end of the atoms
#define ISV_LOSS_BCE_EMA 486  // signal, 1: EMA of |direction loss|
#define ISV_LOSS_AUX_EMA 487  // signal, 1: EMA of |FRD + outcome loss|
#define ISV_Q_DISTILL_LAMBDA 488  // control, 1: weight of the distillation
#define ISV_Q_DISTILL_TEMPERATURE 489  // control, 1: softmax temperature of the distillation target
#define ISV_Q_DISTILL_KL_EMA 490  // signal, nats: KL(pi_target || pi)
#define ISV_Q_DISTILL_KL_TARGET 491  // tunable, nats: KL the distillation weight aims at
#define ISV_REWARD_SCALE_MIN 492  // tunable, 1/USD: lower bound of the reward scale controller
#define ISV_REWARD_SCALE_MAX 493  // tunable, 1/USD: upper bound of the reward scale controller
#define ISV_TRAIL_MIN 494  // tunable, ticks: smallest trail distance
#define ISV_TRAIL_MAX 495  // tunable, ticks: largest trail distance
#define ISV_TRAIL_K_INIT 496  // tunable, 1: initial trail over the mean |trade PnL|
#define ISV_TRAIL_ADJUST_RATE 497  // tunable, 1: tighten multiplies by it, loosen divides
#define ISV_HEAT_CAP_USD 498  // tunable, USD: cap of lots x trail x tick value over units
#define ISV_HEAT_CAP_FIRED 499  // diag, rows: rows the heat cap changed
#define ISV_TRAIL_STOP_FIRED 500  // diag, rows: rows a trail stop changed
#define ISV_MIN_HOLD_FIRED 501  // diag, rows: rows the minimum hold changed
#define ISV_FRD_LAMBDA 502  // tunable, 1: weight of the forward-return loss
#define ISV_FRD_SIGMA_SPAN 503  // tunable, sigma: buckets span +- this many sigma
#define ISV_FRD_SIGMA_SHORT 504  // signal, ticks: std of forward returns at the short horizon, training data
#define ISV_FRD_SIGMA_MEDIUM 505  // signal, ticks: std of forward returns at the medium horizon, training data
#define ISV_FRD_SIGMA_LONG 506  // signal, ticks: std of forward returns at the long horizon, training data
#define ISV_OUTCOME_LAMBDA 507  // tunable, 1: weight of the outcome loss
#define ISV_SIZE_SMALL 508  // tunable, lots: lots of a small action
#define ISV_SIZE_LARGE 509  // tunable, lots: lots of a large action
#define ISV_PYRAMID_MAX_UNITS 510  // tunable, units: units a position may have
#define ISV_ANTI_MARTINGALE_GAIN 511  // tunable, 1: size = base x (1 + gain x outcome EMA)
#define ISV_CONF_GATE_THRESHOLD 512  // control, 1: confidence gate threshold
#define ISV_CONF_GATE_LAMBDA 513  // control, 1: weight of sigma in the confidence gate
#define ISV_CONF_GATE_SIGMA_NORM 514  // tunable, 1: normaliser of the confidence gate
#define ISV_CONF_GATE_FIRED 515  // diag, rows: rows the confidence gate changed
#define ISV_FRD_GATE_THR_LONG 516  // control, 1: forward-return mass a long needs
#define ISV_FRD_GATE_THR_SHORT 517  // control, 1: forward-return mass a short needs
#define ISV_FRD_GATE_FIRED 518  // diag, rows: rows the forward-return gate changed
#define ISV_P_MIN 519  // tunable, 1: probability floor of every action
#define ISV_OUTCOME_ALPHA 520  // tunable, 1: EMA rate of sign(trade PnL) per row
#define ISV_MULTIRES_HORIZON_FAST 521  // tunable, s: fast time constant of the multi-resolution features
#define ISV_MULTIRES_HORIZON_MID 522  // tunable, s: mid time constant of the multi-resolution features
#define ISV_MULTIRES_HORIZON_SLOW 523  // tunable, s: slow time constant of the multi-resolution features
#define ISV_GATE_BYPASS 524  // tunable, 1: probability that a row ignores the entry gates
#define ISV_GATE_TARGET_DONES 525  // tunable, 1: share of rows closing a trade the gates aim at
#define ISV_CONF_GATE_MIN 526  // tunable, 1: lower bound of the confidence threshold
#define ISV_CONF_GATE_MAX 527  // tunable, 1: upper bound of the confidence threshold
#define ISV_FRD_GATE_MIN 528  // tunable, 1: lower bound of the forward-return thresholds
#define ISV_FRD_GATE_MAX 529  // tunable, 1: upper bound of the forward-return thresholds
#define ISV_GATE_ADJUST_RATE 530  // tunable, 1: relax multiplies by it, tighten divides
#define ISV_DONES_EMA 531  // signal, 1: share of rows that closed a trade
#define ISV_ENTRY_COST_USD 532  // tunable, USD: shaping: cost of opening
#define ISV_SHORT_HOLD_PENALTY 533  // tunable, 1: shaping: multiplies a win closed too early; 1 is neutral
#define ISV_SHORT_HOLD_STEPS 534  // tunable, steps: a close before this many steps is early
#define ISV_HOLD_BONUS_USD 535  // tunable, USD: shaping: x sqrt(steps held) while in profit
#define ISV_MIN_HOLD_STEPS 536  // tunable, steps: a policy exit earlier than this becomes Hold
#define ISV_DRAWDOWN_STOP_FIRED 537  // diag, rows: rows the drawdown stop changed
#define ISV_N_STEP 538  // control, steps: n of the replay; where it ends, if it is annealed
#define ISV_PER_BETA 539  // control, 1: importance exponent
#define ISV_NOISY_SIGMA0 540  // tunable, 1: initial sigma of noisy weights
#define ISV_GATE_WARMUP_STEPS 541  // tunable, steps: entry gates are open before this step
#define ISV_IQN_N_TAU 543  // tunable, 1: taus of the IQN head
#define ISV_ENSEMBLE_ALPHA 544  // tunable, 1: alpha C51 + (1 - alpha) IQN
#define ISV_IQN_LR 545  // control, 1: learning rate of the IQN head
#define ISV_PER_MAX_PRIORITY 546  // control, 1: priority of new transitions
#define ISV_PER_SIZE 547  // signal, 1: live transitions
#define ISV_PER_TREE_TOTAL 548  // diag, 1: root of the sum tree
#define ISV_HINDSIGHT_THRESHOLD 549  // tunable, 1: peak over realised PnL that injects
#define ISV_HINDSIGHT_PRIORITY_BOOST 550  // tunable, 1: priority of injected transitions over the max
#define ISV_HINDSIGHT_INJECT_COUNT 551  // diag, 1: backward injections this iteration
#define ISV_HINDSIGHT_FORWARD_LOOKAHEAD 552  // tunable, steps: age at which a closed trade is looked at again
#define ISV_HINDSIGHT_FORWARD_COUNT 553  // diag, 1: forward injections this iteration
#define ISV_HINDSIGHT_LABEL 554  // tunable, 1: 0 close state, 1 peak state, 2 path
#define ISV_HINDSIGHT_SHARE 555  // signal, 1: share of live transitions that are synthetic
#define ISV_HINDSIGHT_MAX_SHARE 556  // tunable, 1: ceiling of that share
#define ISV_POPART_MEAN 557  // control, 1: running mean of returns
#define ISV_POPART_SECOND_MOMENT 558  // control, 1: running second moment of returns
#define ISV_POPART_BETA 559  // tunable, 1: rate of the PopArt moments
#define ISV_SPECTRAL_CAP 560  // tunable, 1: largest singular value allowed
#define ISV_SPECTRAL_Q_NORM 561  // diag, 1: largest singular value of the Q weights
#define ISV_SPECTRAL_PI_NORM 562  // diag, 1: largest singular value of the policy weights
#define ISV_Q_BIAS_EMA 563  // diag, 1: mean(E[Q](s,a) - target) at the executed action
#define ISV_OUTCOME_ACC 564  // diag, 1: accuracy of the outcome head, EMA over closed trades
#define ISV_OUTCOME_WIN_RATE 565  // diag, 1: share of winning trades, EMA over closed trades
#define ISV_OUTCOME_AVG_WIN 566  // diag, USD: mean winning trade, EMA over closed trades
#define ISV_OUTCOME_AVG_LOSS 567  // diag, USD: mean losing trade, EMA over closed trades
#define ISV_BRANCH_LR_MULT_VSN 568  // tunable, 1: learning rate multiplier of the VSN branch
#define ISV_BRANCH_LR_MULT_MAMBA1 569  // tunable, 1: learning rate multiplier of the MAMBA1 branch
#define ISV_BRANCH_LR_MULT_MAMBA2 570  // tunable, 1: learning rate multiplier of the MAMBA2 branch
#define ISV_BRANCH_LR_MULT_CFC 571  // tunable, 1: learning rate multiplier of the CFC branch
#define ISV_BRANCH_LR_MULT_HEADS 572  // tunable, 1: learning rate multiplier of the HEADS branch
#define ISV_BRANCH_GRAD_NORM_VSN 573  // diag, 1: gradient norm of the VSN branch
#define ISV_BRANCH_GRAD_NORM_MAMBA1 574  // diag, 1: gradient norm of the MAMBA1 branch
#define ISV_BRANCH_GRAD_NORM_MAMBA2 575  // diag, 1: gradient norm of the MAMBA2 branch
#define ISV_BRANCH_GRAD_NORM_CFC 576  // diag, 1: gradient norm of the CFC branch
#define ISV_BRANCH_GRAD_NORM_HEADS 577  // diag, 1: gradient norm of the HEADS branch
#define ISV_KL_REF_BETA 578  // tunable, 1: weight of the reference KL
#define ISV_KL_REF_HOLD 579  // tunable, 1: reference probability of Hold
#define ISV_GRAD_CLIP_NORM 580  // tunable, 1: global gradient norm clip of the encoder
#define ISV_ADAM_BETA1 581  // tunable, 1: Adam first moment
#define ISV_ADAM_BETA2 582  // tunable, 1: Adam second moment
#define ISV_ACTION_ENTROPY_EMA 583  // signal, nats: entropy of executed actions, aliases of Hold merged
#define ISV_ADAM_EPS 584  // tunable, 1: Adam epsilon
#define ISV_WEIGHT_DECAY 585  // tunable, 1: decoupled weight decay
#define ISV_DRAWDOWN_RATE 586  // tunable, 1: shaping: x min(0, unrealised R) x initial R in USD
#define ISV_HARD_STOP_R 587  // tunable, R: unrealised R below minus this closes the position
#define ISV_ACTION_SHARE_0 588  // diag, 1: share of executed action 0
#define ISV_ACTION_SHARE_1 589  // diag, 1: share of executed action 1
#define ISV_ACTION_SHARE_2 590  // diag, 1: share of executed action 2
#define ISV_ACTION_SHARE_3 591  // diag, 1: share of executed action 3
#define ISV_ACTION_SHARE_4 592  // diag, 1: share of executed action 4
#define ISV_ACTION_SHARE_5 593  // diag, 1: share of executed action 5
#define ISV_ACTION_SHARE_6 594  // diag, 1: share of executed action 6
#define ISV_ACTION_SHARE_7 595  // diag, 1: share of executed action 7
#define ISV_ACTION_SHARE_8 596  // diag, 1: share of executed action 8
#define ISV_ACTION_SHARE_9 597  // diag, 1: share of executed action 9
#define ISV_ACTION_SHARE_10 598  // diag, 1: share of executed action 10
#define ISV_POSITION_MEAN 599  // diag, lots: mean signed position
#define ISV_POSITION_ABS_MEAN 600  // diag, lots: mean |position|
#define ISV_EQUITY_MEAN 601  // diag, USD: mean equity since the start of the run
#define ISV_EQUITY_MIN 602  // diag, USD: least equity of a row
#define ISV_TRADES_CLOSED 603  // diag, trades: trades closed this iteration
#define ISV_WINS 604  // diag, trades: winning trades closed this iteration
#define ISV_PNL_STEP_USD 605  // diag, USD: net PnL (fills, marks, fees) of this iteration, all rows
#define ISV_FEES_STEP_USD 606  // diag, USD: fees of this iteration, all rows
#define ISV_HOLD_STEPS_MEAN 607  // diag, steps: mean steps the open positions have been held
#define ISV_TRAIN_STEP 608  // signal, steps: environment steps of a row
#define ISV_NONFINITE_COUNT 609  // signal, 1: non-finite gradients or losses this iteration
#define ISV_UNFILLED_LOTS 610  // diag, lots: lots that ten levels could not fill this iteration
#define ISV_OVERRIDDEN_SHARE 611  // diag, 1: share of drawn actions changed by gates, stops and pending orders
#define ISV_ENCODING_DRIFT 612  // diag, 1: relative change of stored encodings
#define ISV_CLOSED_LOTS_EMA 613  // signal, lots: lots of closed trades
#define ISV_UNIT_ACTIVE_0 614  // diag, 1: share of rows that hold unit 0 at the end of the iteration
#define ISV_UNIT_ACTIVE_1 615  // diag, 1: share of rows that hold unit 1 at the end of the iteration
#define ISV_UNIT_ACTIVE_2 616  // diag, 1: share of rows that hold unit 2 at the end of the iteration
#define ISV_UNIT_ACTIVE_3 617  // diag, 1: share of rows that hold unit 3 at the end of the iteration
#define ISV_UNIT_LOTS_0 618  // diag, lots: mean |lots| of unit 0 over the rows that hold it
#define ISV_UNIT_LOTS_1 619  // diag, lots: mean |lots| of unit 1 over the rows that hold it
#define ISV_UNIT_LOTS_2 620  // diag, lots: mean |lots| of unit 2 over the rows that hold it
#define ISV_UNIT_LOTS_3 621  // diag, lots: mean |lots| of unit 3 over the rows that hold it
#define ISV_UNIT_TRAIL_0 622  // diag, ticks: mean trail distance of unit 0 over the rows that hold it
#define ISV_UNIT_TRAIL_1 623  // diag, ticks: mean trail distance of unit 1 over the rows that hold it
#define ISV_UNIT_TRAIL_2 624  // diag, ticks: mean trail distance of unit 2 over the rows that hold it
#define ISV_UNIT_TRAIL_3 625  // diag, ticks: mean trail distance of unit 3 over the rows that hold it
#define ISV_UNIT_AGE_0 626  // diag, steps: mean steps since unit 0 was opened, over the rows that hold it
#define ISV_UNIT_AGE_1 627  // diag, steps: mean steps since unit 1 was opened, over the rows that hold it
#define ISV_UNIT_AGE_2 628  // diag, steps: mean steps since unit 2 was opened, over the rows that hold it
#define ISV_UNIT_AGE_3 629  // diag, steps: mean steps since unit 3 was opened, over the rows that hold it
#define ISV_LR_FINAL_SHARE 630  // tunable, 1: learning rates fall linearly to this share of their seeds at RUN_STEPS; 1 = they do not
#define ISV_N_STEP_START 631  // tunable, steps: where an annealed N_STEP begins
#define ISV_N_STEP_ANNEAL_STEPS 632  // tunable, steps: environment steps of a row over which n falls linearly from N_STEP_START to N_STEP; 0 = N_STEP is constant
