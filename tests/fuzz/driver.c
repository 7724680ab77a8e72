/* Runs a fuzz target for a number of seconds without libFuzzer, with gcc alone:
 *
 *   fuzz_wire SECONDS SEED CRASH_FILE SEED_FILE...
 *
 * Inputs are mutated, and kept if they reach a part of the code, or a count of passes through it,
 * that no input before them did: the sources under test are compiled with
 * -fsanitize-coverage=trace-pc, which calls __sanitizer_cov_trace_pc() in every basic block. The
 * sanitizers end the run at a fault; the input is then in CRASH_FILE.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAP = 1 << 14, LONGEST = 1 << 14, MOST = 1 << 15, SECONDS_AN_INPUT = 20 };

typedef struct {
    uint8_t *data;
    size_t size;
} input_t;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));
void __sanitizer_cov_trace_pc(void);
const char *__asan_default_options(void);

static _Alignas(uint64_t) uint8_t hits[MAP];
static uint8_t seen[MAP];
static uintptr_t last_block;
static input_t corpus[MOST];
static size_t corpus_size;
static uint8_t current[LONGEST];
static size_t current_size;
static const char *crash_file;
static uint64_t state;

const char *__asan_default_options(void) {
    return "handle_abort=1:max_allocation_size_mb=1024:allocator_may_return_null=0";
}

void __sanitizer_cov_trace_pc(void) {
    uintptr_t block = (uintptr_t)__builtin_return_address(0);
    block = (block >> 4) ^ (block << 8);
    hits[(block ^ last_block) % MAP]++;
    last_block = block >> 1;
}

static void save_input(void) {
    FILE *file = fopen(crash_file, "wb");
    if (file == NULL) return;
    fwrite(current, 1, current_size, file);
    fclose(file);
    fprintf(stderr, "the input is in %s\n", crash_file);
}

static void too_slow(int signal_number) {
    (void)signal_number;
    save_input();
    fprintf(stderr, "an input took more than %d s\n", SECONDS_AN_INPUT);
    _exit(1);
}

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit) { return limit ? (size_t)(next_random() % limit) : 0; }

static void keep(const uint8_t *data, size_t size) {
    if (corpus_size == MOST) return;
    uint8_t *copy = malloc(size ? size : 1);
    if (copy == NULL) exit(2);
    memcpy(copy, data, size);
    corpus[corpus_size++] = (input_t){copy, size};
}

/* Counts in eight classes, so that a loop that turns once more is nothing new. */
static uint8_t class_of(uint8_t count) {
    static const uint8_t least[] = {128, 32, 16, 8, 4, 3, 2, 1};
    for (int i = 0; i < 8; i++)
        if (count >= least[i]) return (uint8_t)(1 << i);
    return 0;
}

static int run_current(void) {
    memset(hits, 0, sizeof hits);
    last_block = 0;
    alarm(SECONDS_AN_INPUT);
    LLVMFuzzerTestOneInput(current, current_size);
    int news = 0;
    for (size_t word = 0; word < MAP; word += sizeof(uint64_t)) {
        uint64_t any;
        memcpy(&any, hits + word, sizeof any);
        if (!any) continue;
        for (size_t i = word; i < word + sizeof any; i++) {
            uint8_t bit = class_of(hits[i]);
            if (bit & ~seen[i]) news = 1;
            seen[i] |= bit;
        }
    }
    return news;
}

static void insert(size_t at, const uint8_t *data, size_t size) {
    if (current_size + size > LONGEST) return;
    memmove(current + at + size, current + at, current_size - at);
    memcpy(current + at, data, size);
    current_size += size;
}

static void erase(size_t at, size_t size) {
    if (size > current_size - at) size = current_size - at;
    memmove(current + at, current + at + size, current_size - at - size);
    current_size -= size;
}

static void mutate_once(void) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '[', ',', ':', '-', '9', 'e'};
    uint8_t piece[64];
    const input_t *other = &corpus[below(corpus_size)];
    size_t at = below(current_size), size = 1 + below(sizeof piece), from = below(other->size);
    if (size > other->size - from) size = other->size - from;
    memcpy(piece, other->data + from, size);
    switch (current_size ? below(7) : 5) {
    case 0: current[at] ^= (uint8_t)(1 << below(8)); break;
    case 1: current[at] = edges[below(sizeof edges)]; break;
    case 2: current[at] = (uint8_t)(current[at] + below(35) - 17); break;
    case 3: current[at] = (uint8_t)next_random(); break;
    case 4: erase(at, 1 + below(32)); break;
    case 5: insert(at, piece, size); break;
    default:
        if (size > current_size - at) size = current_size - at;
        memcpy(current + at, piece, size);
    }
}

static void read_seed(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    current_size = fread(current, 1, LONGEST, file);
    fclose(file);
    run_current();
    keep(current, current_size);
}

int main(int count, char **words) {
    if (count < 5) {
        fprintf(stderr, "usage: %s SECONDS SEED CRASH_FILE SEED_FILE...\n", words[0]);
        return 2;
    }
    time_t end = time(NULL) + atol(words[1]);
    state = strtoull(words[2], NULL, 10) * 2654435761u + 88172645463325252u;
    crash_file = words[3];
    __sanitizer_set_death_callback(save_input);
    signal(SIGALRM, too_slow);
    for (int i = 4; i < count; i++) read_seed(words[i]);
    size_t seeds = corpus_size;
    unsigned long long runs = 0;
    for (; time(NULL) < end; runs++) {
        const input_t *parent = &corpus[below(corpus_size)];
        memcpy(current, parent->data, parent->size);
        current_size = parent->size;
        for (size_t times = 1 + below(8); times; times--) mutate_once();
        if (run_current()) keep(current, current_size);
    }
    alarm(0);
    for (size_t i = 0; i < corpus_size; i++) free(corpus[i].data);
    printf("%llu inputs without a fault; %zu of them reached something new\n", runs, corpus_size - seeds);
    return 0;
}
