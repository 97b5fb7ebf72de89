// The built-in variables of CUDA, which cuda_on_cpu.h declares under their own names. Grids and blocks have one dimension.
//
// initial-exec: one instruction to reach them. They live in this small library and not with the kernels, whose
// thread-local __shared__ arrays would not fit the static space that initial-exec needs.
#pragma once

#define FH_INDEX __thread __attribute__((tls_model("initial-exec"), visibility("default")))
struct Index3 {
    int x;
    unsigned y, z;
};
extern "C" {
FH_INDEX Index3 fh_thread_index = {0, 0, 0};
FH_INDEX Index3 fh_block_index = {0, 0, 0};
FH_INDEX Index3 fh_block_size = {1, 1, 1};
FH_INDEX Index3 fh_grid_size = {1, 1, 1};
FH_INDEX void* fh_dynamic_shared = nullptr;
}
