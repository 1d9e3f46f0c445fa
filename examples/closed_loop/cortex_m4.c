/* The line on an MPS2 board with a Cortex-M4 (QEMU's mps2-an386): its first serial port, and its SysTick as a clock. */
#include <stddef.h>
#include <stdint.h>

#define UART ((volatile uint32_t *)0x40004000)  /* data, state, control, interrupt, divisor */
#define SYSTICK ((volatile uint32_t *)0xe000e010)  /* control, reload, current: counts down, 24 bits */
#define PAINT 0xa5a5a5a5u

void serve(void);
extern uint32_t stack_bottom[], stack_top[], data_start[], data_end[], data_image[], bss_start[], bss_end[];

int line_read(void)
{
    while (!(UART[1] & 2)) {}
    return (int)(UART[0] & 255);
}

void line_write(int byte)
{
    while (UART[1] & 1) {}
    UART[0] = (uint32_t)byte;
}

void line_flush(void) {}
uint32_t ticks(void) { return SYSTICK[2]; }
uint32_t ticks_between(uint32_t from, uint32_t to) { return (from - to) & 0xffffff; }

uint32_t stack_used(void)
{
    uint32_t *p = stack_bottom;
    while (*p == PAINT) p++;
    return (uint32_t)((char *)stack_top - (char *)p);
}

void start(void)
{
    for (uint32_t *to = data_start, *from = data_image; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;) *to++ = 0;
    uint32_t *here = (uint32_t *)__builtin_frame_address(0) - 16;
    for (volatile uint32_t *p = stack_bottom; p < here;) *p++ = PAINT;
    UART[4] = 16;
    UART[2] = 3;
    SYSTICK[1] = 0xffffff;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    serve();
    for (;;) {}
}

__attribute__((section(".vectors"), used)) static void *const vectors[] = {stack_top, (void *)start};

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
