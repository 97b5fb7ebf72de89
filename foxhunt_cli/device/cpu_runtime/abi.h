// What the runtime library, the translation units of kernels and the Python host agree on.
//
// Includes nothing: every kernel file pays for this text. cpu.py and cpu_plan.py mirror the structs field by field.
#pragma once

// Where in the source a barrier or warp operation stands; its address identifies the place.
struct fh_site {
    const char* file;
    int line;
};

// Kernels without barriers: a loop over threads [first_thread, last_thread) of blocks [first_block, last_block).
typedef void fh_plain_fn(const void* args, int first_block, int last_block, int first_thread, int last_thread,
                         int block_size, int grid_size);
// Kernels with barriers: one thread, started on a fiber of the runtime, which has set threadIdx and blockIdx.
typedef void fh_thread_fn(const void* args);

enum fh_op_kind { FH_LAUNCH = 0, FH_FILL = 1, FH_COPY = 2, FH_PRODUCT = 3 };

// out (m x n) = a (m x k) b (k x n). Distances from row to row and from column to column in elements, either order;
// the smaller of an operand's two is 1.
struct fh_product {
    void* out;
    const void* a;
    const void* b;
    long m, n, k;
    long out_row, out_column;
    long a_row, a_column;
    long b_row, b_column;
    int accumulate; // out +=
    int is_double;
};

// One operation of a recorded plan. Exactly one of plain and thread is set in a launch.
struct fh_op {
    int kind;
    int grid;
    int block;
    int shared_bytes;
    fh_plain_fn* plain;
    fh_thread_fn* thread;
    const void* args;         // launch: one 8-byte slot a parameter; product: its fh_product
    void* dst;                // fill, copy
    const void* src;          // copy
    unsigned long long bytes; // fill, copy
    const int* when;          // null, or where a 0 stands in the way of the operation
    const char* name;         // kernel, for reports
    const char* file;         // kernel file, for reports
    double cost_ns;           // measured work on one thread; the runtime keeps it up to date
};

enum fh_order { FH_FORWARD = 0, FH_REVERSE = 1, FH_RANDOM = 2 };

struct fh_settings {
    int threads; // OS threads a launch may use, the calling one included
    int order;   // fh_order of the threads of a block and of the blocks of a launch
    unsigned long long seed;
    int poison; // fill shared memory with NaN before each block
};

enum fh_warp_kind { FH_WARP_SYNC, FH_WARP_SHUFFLE, FH_WARP_BALLOT };
enum fh_reduce_kind { FH_COUNT, FH_AND, FH_OR };

extern "C" {
void fh_sync(const fh_site* here);
int fh_sync_reduce(int predicate, int reduce_kind, const fh_site* here);
unsigned long long fh_warp(unsigned mask, unsigned long long value, int warp_kind, int source_lane,
                           const fh_site* here);

// Runs the list in order. Null, or what went wrong (valid until the next call from this thread).
const char* fh_run(fh_op* ops, long long count, const fh_settings* settings);
// Which build of the runtime this is: a process can hold one.
const char* fh_key();
}
