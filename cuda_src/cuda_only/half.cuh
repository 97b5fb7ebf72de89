// Half-precision operands of the tensor cores (sm_80 and newer): rounding, and the instruction that multiplies them; 2^x.
//
// Half has ten bits of mantissa, as TF32, and a range of 6e-8 to 65504: for operands whose size is known.
#pragma once

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Two floats as halves, nearest even; low goes into the lower bits.
static __device__ __forceinline__ unsigned int to_halves(float low, float high) {
    unsigned int bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// 2^x to two units in the last place; 0 below the normal numbers.
static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

// d += a (16x16) * b (16x8), operands half. With g = lane / 4 and t = lane % 4 a thread holds, by pairs of inputs
// 2 t, 2 t + 1 and then 2 t + 8, 2 t + 9: a: outputs g, g + 8, g, g + 8; b: column g, column g.
static __device__ __forceinline__ void mma_half(float* d, const unsigned int* a, unsigned int b0, unsigned int b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
