// Constants and functions of the CfC cell.
#pragma once
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "nets/lanes.cuh"

#define CFC_AMPLITUDE 1.7159f        // LeCun's scaled tanh: u = 1.7159 tanh(2/3 v), so that u(1) = 1
#define CFC_SLOPE (2.0f / 3.0f)      // 2/3
#define CFC_GATES (4 * HIDDEN_DIM)   // columns of the gate product: f, g, rate a, offset t
#define CFC_F 0                      // first column of each gate
#define CFC_G HIDDEN_DIM
#define CFC_RATE (2 * HIDDEN_DIM)
#define CFC_OFFSET (3 * HIDDEN_DIM)
