/*
 * A policy that answers over a line: a byte that says what is asked, then an observation; back come its command and
 * its code. The same on a board, over its serial port, and on a computer, over a pipe.
 *
 *     a OBSERVATION   ->  command, code                          act
 *     i OBSERVATION   ->  command, code, ticks                   act, and say how long it took
 *     r COUNT SEED    ->  command, code; ...                     act on so many observations that it draws itself
 *     s               ->  bytes of the stack that were ever used (0: not known)
 *
 * Every number is an int32, little-endian; bytes of an observation are sent as int32 too.
 */
#include "policy.h"

int line_read(void);  /* a byte, or -1 at the end */
void line_write(int byte);
void line_flush(void);
uint32_t ticks(void);  /* of a clock that runs on, of which ticks_between takes two readings */
uint32_t ticks_between(uint32_t from, uint32_t to);
uint32_t stack_used(void);

#ifdef POLICY_ACTIONS
#define RESULTS POLICY_ACTIONS
#else
#define RESULTS POLICY_VALUES
#endif

static int read_number(int32_t *number)
{
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) {
        int byte = line_read();
        if (byte < 0) return 0;
        bits |= (uint32_t)byte << 8 * i;
    }
    *number = (int32_t)bits;
    return 1;
}

static void write_number(int32_t number)
{
    for (int i = 0; i < 4; i++) line_write((int)((uint32_t)number >> 8 * i & 255));
}

/* The number at this place of a sequence that looks random: MurmurHash3's last mixing of the place. */
static uint32_t mixed(uint32_t place)
{
    uint32_t z = place * 0x9e3779b9u;
    z = (z ^ z >> 16) * 0x85ebca6bu;
    z = (z ^ z >> 13) * 0xc2b2ae35u;
    return z ^ z >> 16;
}

/* Of every size: the second number says by which power of two the first is divided. */
static int32_t drawn(uint32_t place)
{
    return (int32_t)mixed(2 * place) / (int32_t)(1u << mixed(2 * place + 1) % 24);
}

void serve(void)
{
    static int32_t result[RESULTS];
#ifdef POLICY_BYTES
    static uint8_t observation[POLICY_OBSERVATIONS];
#else
    static int32_t observation[POLICY_OBSERVATIONS];
#endif
    for (;;) {
        int what = line_read();
        if (what < 0) return;
        if (what == 's') {
            write_number((int32_t)stack_used());
            line_flush();
            continue;
        }
        if (what == 'r') {
            int32_t count, seed;
            if (!read_number(&count) || !read_number(&seed)) return;
            for (uint32_t n = 0; n < (uint32_t)count; n++) {
                for (uint32_t i = 0; i < POLICY_OBSERVATIONS; i++)
                    observation[i] = drawn((uint32_t)seed + n * POLICY_OBSERVATIONS + i);
                int code = policy(observation, result);
                for (int o = 0; o < RESULTS; o++) write_number(result[o]);
                write_number(code);
            }
            line_flush();
            continue;
        }
        for (int i = 0; i < POLICY_OBSERVATIONS; i++) {
            int32_t number;
            if (!read_number(&number)) return;
            observation[i] = number;
        }
        uint32_t before = ticks();
        int code = policy(observation, result);
        uint32_t after = ticks();
        for (int o = 0; o < RESULTS; o++) write_number(result[o]);
        write_number(code);
        if (what == 'i') write_number((int32_t)ticks_between(before, after));
        line_flush();
    }
}
