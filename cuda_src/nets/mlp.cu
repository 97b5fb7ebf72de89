// Element-wise stages of dense layers; the products themselves are operations of the device.
#include "include/math.cuh"

// bias_tanh: y = tanh(y + bias), in place, after y = x W.
// launch: threads rows*cols, block 128
// updates: y
// One thread an element. y [rows, cols], bias [cols].
extern "C" __global__ void bias_tanh(const float* bias, float* y, int rows, int cols) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)rows * cols) return;
    y[i] = tanhf(y[i] + bias[i % cols]);
}

// tanh_backward: gradient before the tanh from the gradient after it: grad *= 1 - y^2, in place.
// launch: threads rows*cols, block 128
// updates: grad
// One thread an element. y, grad [rows, cols]; y is the tanh's output.
extern "C" __global__ void tanh_backward(const float* y, float* grad, int rows, int cols) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)rows * cols) return;
    grad[i] *= tanh_slope(y[i]);
}
