// Noisy linear layers (noise.cuh): the noise, the weights under it, the gradients behind it.
#include "nets/noise.cuh"

#define NOISY_BLOCK 128  // outputs of a block

// rl_sample_noise: f(e) = sign(e) sqrt(|e|) of standard normals.
// launch: threads n, block 64
// updates: rng_noise
// One thread an element. rng_noise [n] xorshift32 states; noise [n]: the inputs' factors, then the outputs'.
extern "C" __global__ void rl_sample_noise(unsigned int* rng_noise, float* noise, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) noise[i] = noise_factor(&rng_noise[i]);
}

// rl_noisy_compose: the layer's weights under this noise.
// launch: blocks (inputs + 1)*((outputs + 127)/128), block 128
// A block is 128 outputs of one row of the weights, or of the bias, which comes last; one thread an output. w, sw
// [inputs, outputs]; b, sb [outputs]; noise [inputs + outputs]; noisy_w [inputs, outputs]; noisy_b [outputs].
extern "C" __global__ void rl_noisy_compose(const float* w, const float* sw, const float* b, const float* sb,
                                            const float* noise, float* noisy_w, float* noisy_b, int inputs,
                                            int outputs) {
    const int parts = (outputs + NOISY_BLOCK - 1) / NOISY_BLOCK, block = blockIdx.x;
    const int row = block / parts, n = block % parts * NOISY_BLOCK + threadIdx.x;
    const bool bias = row == inputs;
    const long long start = (long long)row * outputs;
    const float *mean = bias ? b : w + start, *sigma = bias ? sb : sw + start;
    float* out = bias ? noisy_b : noisy_w + start;
    const float in_factor = bias ? 1.0f : noise[row];
    if (n < outputs) out[n] = noisy_weight(mean[n], sigma[n], in_factor, noise[inputs + n]);
}

// rl_noisy_backward: gradients of sw and sb from those of w and b.
// launch: blocks (inputs + 1)*((outputs + 127)/128), block 128
// Mapping as above. d/dsw = d/dw f(e_in) f(e_out); d/dsb = d/db f(e_out).
extern "C" __global__ void rl_noisy_backward(const float* grad_w, const float* grad_b, const float* noise,
                                             float* grad_sw, float* grad_sb, int inputs, int outputs) {
    const int parts = (outputs + NOISY_BLOCK - 1) / NOISY_BLOCK, block = blockIdx.x;
    const int row = block / parts, n = block % parts * NOISY_BLOCK + threadIdx.x;
    const bool bias = row == inputs;
    const long long start = (long long)row * outputs;
    const float* grad = bias ? grad_b : grad_w + start;
    float* out = bias ? grad_sb : grad_sw + start;
    const float in_factor = bias ? 1.0f : noise[row];
    if (n < outputs) out[n] = grad[n] * (in_factor * noise[inputs + n]);
}
