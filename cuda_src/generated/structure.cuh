// Generated from foxhunt_cli/config/dims.py by foxhunt_cli/isv/header.py: do not edit.
#pragma once
#define N_LEVELS 10  // book levels a side
#define N_REGIME 6  // regime fields of a snapshot
#define FEATURE_DIM 40  // features of a snapshot
#define MULTIRES_DIM 12  // multi-resolution features: 3 horizons x 4
#define CONTEXT_DIM 4  // trade context features of a row
#define ENCODER_INPUT_DIM 56  // FEATURE_DIM + CONTEXT_DIM + MULTIRES_DIM
#define HIDDEN_DIM 128  // width of the encoding h
#define N_ACTIONS 11  // actions
#define HEAD_CONTEXT_DIM 3  // trade context at the heads: time in trade, unrealised R, drawdown from peak
#define MAX_UNITS 4  // pyramid units a row can hold
#define N_HORIZONS 3  // forward-return horizons
#define N_BUCKETS 21  // forward-return buckets
#define WARMUP_SNAPSHOTS 32  // K: snapshots behind a cursor that are always there
#define ACTION_SHORT_LARGE 0  // open or add -LARGE, reverse a long
#define ACTION_SHORT_SMALL 1  // open or add -SMALL, reverse a long
#define ACTION_HOLD 2  // keep the position
#define ACTION_FLAT_FROM_LONG 3  // close a long
#define ACTION_FLAT_FROM_SHORT 4  // close a short
#define ACTION_LONG_SMALL 5  // open or add +SMALL, reverse a short
#define ACTION_LONG_LARGE 6  // open or add +LARGE, reverse a short
#define ACTION_TRAIL_TIGHTEN 7  // trails x rate
#define ACTION_TRAIL_LOOSEN 8  // trails / rate
#define ACTION_HALF_FLAT_LONG 9  // close half of a long, rounded up
#define ACTION_HALF_FLAT_SHORT 10  // close half of a short, rounded up
