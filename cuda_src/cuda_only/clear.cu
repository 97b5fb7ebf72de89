// Zero fills that a condition may skip; without one a fill is the driver's memset.

// clear_words: every word becomes 0.
// launch: threads count, block 256
// One thread a word of 32 bits.
extern "C" __global__ void clear_words(unsigned int* words, long long count) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] = 0u;
}
