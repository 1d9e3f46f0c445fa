/* The line on a computer: standard input and output. */
#include <stdint.h>
#include <stdio.h>

void serve(void);
int line_read(void) { return getchar(); }
void line_write(int byte) { putchar(byte); }
void line_flush(void) { fflush(stdout); }
uint32_t ticks(void) { return 0; }
uint32_t ticks_between(uint32_t from, uint32_t to) { return to - from; }
uint32_t stack_used(void) { return 0; }

int main(void)
{
    serve();
    return 0;
}
