/* The line on QEMU's RISC-V board virt: its serial port, and the counter of retired instructions as a clock. */
#include <stddef.h>
#include <stdint.h>

#define UART ((volatile uint8_t *)0x10000000)  /* a 16550 */
#define PAINT 0xa5a5a5a5u

void serve(void);
extern uint32_t stack_bottom[], stack_top[], bss_start[], bss_end[];

int line_read(void)
{
    while (!(UART[5] & 1)) {}
    return UART[0];
}

void line_write(int byte)
{
    while (!(UART[5] & 32)) {}
    UART[0] = (uint8_t)byte;
}

void line_flush(void) {}

uint32_t ticks(void)
{
    uint32_t count;
    __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop" : "=r"(count));
    return count;
}

uint32_t ticks_between(uint32_t from, uint32_t to) { return to - from; }

uint32_t stack_used(void)
{
    uint32_t *p = stack_bottom;
    while (*p == PAINT) p++;
    return (uint32_t)((char *)stack_top - (char *)p);
}

void begin(void)
{
    for (uint32_t *to = bss_start; to < bss_end;) *to++ = 0;
    uint32_t *here = (uint32_t *)__builtin_frame_address(0) - 16;
    for (volatile uint32_t *p = stack_bottom; p < here;) *p++ = PAINT;
    serve();
    for (;;) {}
}

__asm__(".section .start\n.globl _start\n_start:\nla sp, stack_top\nj begin\n.text");

/* what a compiler may call by itself */
void *memset(void *to, int byte, size_t size)
{
    for (volatile unsigned char *p = to; size--;) *p++ = (unsigned char)byte;
    return to;
}

void *memcpy(void *to, const void *from, size_t size)
{
    volatile unsigned char *p = to;
    for (const unsigned char *q = from; size--;) *p++ = *q++;
    return to;
}
