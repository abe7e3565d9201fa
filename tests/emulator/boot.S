// From the reset vector to 64-bit mode, and the ways into machine.cpp from there.

.set ROM, 0xffff0000                 // where the processor sees the ROM; it ends at 4 GB
.set RAM, 0x200000                   // where it is linked to run
.set TO_ROM, ROM - RAM

.section .reset, "ax"
.code16
reset:
    jmp     real_mode
.globl reset

.text
real_mode:
    cli
    lgdtl   %cs:(gdt_pointer - RAM)
    mov     %cr0, %eax
    and     $0x9ffffffb, %eax        // caches on, no FPU emulation
    or      $0x33, %eax              // protected mode, native FPU errors
    mov     %eax, %cr0
    ljmpl   $0x08, $(protected_mode + TO_ROM)

.code32
protected_mode:
    mov     $0x10, %eax
    mov     %eax, %ds
    mov     %eax, %es
    mov     %eax, %ss
    mov     $ROM, %esi
    mov     $RAM, %edi
    mov     $0x4000, %ecx
    cld
    rep movsl
    mov     $in_ram, %eax
    jmp     *%eax

in_ram:
    mov     $bss, %edi
    mov     $bss_end, %ecx
    sub     %edi, %ecx
    shr     $2, %ecx
    xor     %eax, %eax
    rep stosl
    // 4 GB in pages of 2 MB, each where it is; the first is left out, for null pointers.
    mov     $pages + 8, %edi
    mov     $0x200083, %eax
1:  mov     %eax, (%edi)
    add     $8, %edi
    add     $0x200000, %eax
    jnc     1b
    movl    $pages + 0x0003, tables + 0x1000
    movl    $pages + 0x1003, tables + 0x1008
    movl    $pages + 0x2003, tables + 0x1010
    movl    $pages + 0x3003, tables + 0x1018
    movl    $tables + 0x1003, tables
    mov     $tables, %eax
    mov     %eax, %cr3
    mov     %cr4, %eax
    or      $0x620, %eax             // PAE, SSE and its exceptions
    mov     %eax, %cr4
    mov     $0xc0000080, %ecx        // EFER: 64-bit mode, syscall
    rdmsr
    or      $0x101, %eax
    wrmsr
    mov     %cr0, %eax
    or      $0x80000000, %eax
    mov     %eax, %cr0
    ljmpl   $0x18, $long_mode

.code64
long_mode:
    mov     $0x20, %eax
    mov     %eax, %ds
    mov     %eax, %es
    mov     %eax, %ss
    mov     $stack, %esp
    call    machine_main

// The program runs in ring 0 as well: a system call is a call, on the program's own stack.
.globl system_call_entry
system_call_entry:
    lea     -128(%rsp), %rsp         // the red zone
    push    %rbp
    mov     %rsp, %rbp
    push    %rcx
    push    %r11
    push    %r9
    push    %r8
    push    %r10
    push    %rdx
    push    %rsi
    push    %rdi
    mov     %rsp, %rsi               // the six arguments in order
    mov     %rax, %rdi
    and     $-16, %rsp
    cld
    call    system_call
    lea     -64(%rbp), %rsp
    pop     %rdi
    pop     %rsi
    pop     %rdx
    pop     %r10
    pop     %r8
    pop     %r9
    pop     %r11
    pop     %rcx
    pop     %rbp
    lea     128(%rsp), %rsp
    jmp     *%rcx

// Exceptions: 16 bytes each, all fatal.
.globl exception_entries
.balign 16
exception_entries:
.set vector, 0
.rept 32
    .balign 16
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
    push    $0                       // where the processor pushes no error code
    .endif
    push    $vector
    jmp     exception_entry
    .set vector, vector + 1
.endr
exception_entry:
    mov     (%rsp), %rdi
    mov     16(%rsp), %rsi
    and     $-16, %rsp
    cld
    call    exception

.section .rodata
.balign 8
gdt:
    .quad   0
    .quad   0x00cf9b000000ffff       // 0x08: code, 32 bits
    .quad   0x00cf93000000ffff       // 0x10: data
    .quad   0x00af9b000000ffff       // 0x18: code, 64 bits
    .quad   0x00cf93000000ffff       // 0x20: data
gdt_pointer:
    .word   gdt_pointer - gdt - 1
    .long   gdt + TO_ROM

.bss
.balign 4096
tables:
    .skip   0x2000
.globl pages
pages:
    .skip   0x4000
    .skip   0x4000
stack:

.section .note.GNU-stack, "", @progbits
