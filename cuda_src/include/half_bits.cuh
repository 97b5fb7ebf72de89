// Two floats as halves, where kernels of every device pack operands of tensor cores.
#pragma once

// Bits of the nearest half, ties to even; infinity from 65520 on, NaN stays NaN.
static __device__ inline unsigned int half_bits(float v) {
    const unsigned int bits = __float_as_uint(v), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return sign | 0x7E00u;
    if (size >= 0x477FF000u) return sign | 0x7C00u;
    if (size < 0x38800000u) {  // below the normal halves: the unit is 2^-24, which adding 1/2 leaves at the low end
        return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) & 0x7FFu);
    }
    return sign | ((size - 0x38000000u + 0x0FFFu + (size >> 13 & 1u)) >> 13);
}

// low goes into the lower bits.
static __device__ inline unsigned int pack_halves(float low, float high) { return half_bits(low) | half_bits(high) << 16; }
