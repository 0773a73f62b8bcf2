// SPDX-License-Identifier: Apache-2.0
/* vfork's child runs on its parent's stack, so nothing of ours may lie there when it returns: a wrapper in C would be
   called once and return twice.  Where to return to is kept in the thread's own memory, which the child shares. */
#if defined(__x86_64__)
  .text
  .globl vfork
  .type vfork, @function
vfork:
  endbr64
  movq (%rsp), %rdi
  subq $8, %rsp
  call penstock_vfork_begin
  addq $8, %rsp
  testq %rdx, %rdx
  jz 1f
  addq $8, %rsp             /* our return address is kept; the stack is as before the call */
  call *%rax
  movslq %eax, %rdi
  call penstock_vfork_end
  jmp *%rdx
1:
  jmp *%rax
  .size vfork, . - vfork
#elif defined(__aarch64__)
  .text
  .globl vfork
  .type vfork, %function
vfork:
  hint 34                   /* bti c */
  stp x29, x30, [sp, #-16]!
  mov x0, x30
  bl penstock_vfork_begin
  ldp x29, x30, [sp], #16
  cbz x1, 1f
  blr x0
  sxtw x0, w0
  bl penstock_vfork_end
  br x1
1:
  br x0
  .size vfork, . - vfork
#endif
  .section .note.GNU-stack, "", %progbits
