// Switching stacks: the three ways to leave one fiber and enter another.
//
//   prepare_stack(bottom, size, entry)  -> a context that starts entry() on that stack
//   switch_context(&saved, target)      -> leave the running fiber (saved names it from then on), continue target
//
// A switch is about 5 ns in assembly and 300 ns through ucontext, which makes a system call for the signal mask.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(FH_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#include <ucontext.h>

static inline void switch_context(void** saved, void* target) {
    ucontext_t self; // on the stack of the fiber that leaves: lives until it is entered again
    *saved = &self;
    swapcontext(&self, static_cast<ucontext_t*>(target));
}

static inline void* prepare_stack(char* bottom, size_t size, void (*entry)()) {
    const size_t room = (sizeof(ucontext_t) + 63) & ~size_t(63);
    ucontext_t* context = reinterpret_cast<ucontext_t*>(bottom + size - room);
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = size - room;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}

#elif defined(__x86_64__)

// Leaves by jmp, not ret: the return-address predictor stays in step because every fiber resumes at the same call.
// rbx and rbp are saved by hand (clang refuses them as clobbers); all else is a clobber, so that the compiler
// saves only what is live. The AVX-512 registers must be in the list: without them a caller's values kept in
// zmm16-31 or k1-7 survive inlining and inter-procedural register allocation on paper, and not in fact.
// Pushes below the stack pointer: the runtime is built with -mno-red-zone.
static inline __attribute__((always_inline)) void switch_context(void** saved, void* target) {
    void* a = saved;
    void* d = target;
    asm volatile(
        "pushq %%rbp\n\t"
        "pushq %%rbx\n\t"
        "leaq 1f(%%rip), %%rcx\n\t"
        "pushq %%rcx\n\t"
        "movq %%rsp, (%0)\n\t"
        "movq %1, %%rsp\n\t"
        "popq %%rcx\n\t"
        "jmpq *%%rcx\n"
        "1:\n\t"
        "popq %%rbx\n\t"
        "popq %%rbp"
        : "+a"(a), "+d"(d)
        :
        : "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0", "xmm1",
          "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
          "xmm15"
#ifdef __AVX512F__
          , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",
          "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
    );
}

// entry is reached by jmp with rsp = 8 mod 16, as after a call; the null above it ends a debugger's backtrace.
static inline void* prepare_stack(char* bottom, size_t size, void (*entry)()) {
    void** top = reinterpret_cast<void**>(bottom + size);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    return top;
}

#else

asm(R"(
.text
.p2align 4
.local fh_switch_context
.type fh_switch_context, %function
fh_switch_context:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size fh_switch_context, . - fh_switch_context
)");
extern "C" __attribute__((visibility("hidden"))) void fh_switch_context(void** saved, void* target);

static inline void switch_context(void** saved, void* target) { fh_switch_context(saved, target); }

static inline void* prepare_stack(char* bottom, size_t size, void (*entry)()) {
    char* frame = bottom + size - 160;
    memset(frame, 0, 160);
    *reinterpret_cast<void**>(frame + 88) = reinterpret_cast<void*>(entry); // x30, where ret goes
    return frame;
}
#endif
