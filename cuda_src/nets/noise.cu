// Noisy linear layers (noise.cuh): the noise, the weights under it, the gradients behind it.
#include "nets/noise.cuh"

// rl_sample_noise: f(e) = sign(e) sqrt(|e|) of standard normals.
// launch: threads n, block 64
// updates: rng_noise
// One thread an element. rng_noise [n] xorshift32 states; noise [n]: the inputs' factors, then the outputs'.
extern "C" __global__ void rl_sample_noise(unsigned int* rng_noise, float* noise, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) noise[i] = noise_factor(&rng_noise[i]);
}

// rl_noisy_compose: the layer's weights under this noise.
// launch: blocks inputs+1, block 128
// One block a row of the weights, one more for the bias; a thread strides over the outputs. w, sw [inputs, outputs];
// b, sb [outputs]; noise [inputs + outputs]; noisy_w [inputs, outputs]; noisy_b [outputs].
extern "C" __global__ void rl_noisy_compose(const float* w, const float* sw, const float* b, const float* sb,
                                            const float* noise, float* noisy_w, float* noisy_b, int inputs,
                                            int outputs) {
    const int row = blockIdx.x;
    const long long start = (long long)row * outputs;
    const float* out_factor = noise + inputs;
    if (row < inputs) {
        const float in_factor = noise[row];
        for (int n = threadIdx.x; n < outputs; n += blockDim.x) {
            noisy_w[start + n] = noisy_weight(w[start + n], sw[start + n], in_factor, out_factor[n]);
        }
    } else {
        for (int n = threadIdx.x; n < outputs; n += blockDim.x) noisy_b[n] = noisy_bias(b[n], sb[n], out_factor[n]);
    }
}

// rl_noisy_backward: gradients of sw and sb from those of w and b.
// launch: blocks inputs+1, block 128
// Mapping as above. d/dsw = d/dw f(e_in) f(e_out); d/dsb = d/db f(e_out).
extern "C" __global__ void rl_noisy_backward(const float* grad_w, const float* grad_b, const float* noise,
                                             float* grad_sw, float* grad_sb, int inputs, int outputs) {
    const int row = blockIdx.x;
    const long long start = (long long)row * outputs;
    const float* out_factor = noise + inputs;
    if (row < inputs) {
        const float in_factor = noise[row];
        for (int n = threadIdx.x; n < outputs; n += blockDim.x) {
            grad_sw[start + n] = grad_w[start + n] * (in_factor * out_factor[n]);
        }
    } else {
        for (int n = threadIdx.x; n < outputs; n += blockDim.x) grad_sb[n] = grad_b[n] * out_factor[n];
    }
}
