/* Coverage-guided fuzzing of the reader of PyTorch host traces with libFuzzer:
 *
 *   clang -g -O1 -std=c11 -fsanitize=fuzzer,address,undefined -Inative native/wire/pool.c \
 *       native/host/*.c tests/fuzz/fuzz_host.c -o fuzz_host
 *   ./fuzz_host -max_total_time=600 -rss_limit_mb=512 CORPUS_FOLDER
 *
 * Without clang, `make sanitize` runs it with the driver beside this file (driver.c).
 *
 * The first byte chooses the layout and where the text is cut in two. Beyond memory errors it checks
 * that spans and indexes lie where they may, and that a cut changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "host/scan.h"

host_t *host_new(uint64_t seed, int32_t flat);
void host_free(host_t *host);
int32_t host_scan(host_t *host, const uint8_t *data, int64_t size, int64_t *used);

static void check(const host_t *host, int64_t size) {
    const node_t *nodes = host->nodes.data;
    const tensor_t *tensors = host->tensors.data;
    for (int64_t i = 0; i < host->nodes.size; i++) {
        if (nodes[i].begin < 0 || nodes[i].begin >= nodes[i].end || nodes[i].end > size) abort();
        if (nodes[i].kind < 0 || nodes[i].kind >= host->kinds.pool->count) abort();
        if (nodes[i].inputs > nodes[i].outputs || nodes[i].outputs > host->tensors.size) abort();
    }
    for (int64_t i = 0; i < host->tensors.size; i++) {
        if (tensors[i].shape < 0 || tensors[i].shape + tensors[i].dims > host->sizes.size) abort();
        if (tensors[i].dtype < 0 || tensors[i].dtype >= host->words.pool->count) abort();
        if (tensors[i].device < 0 || tensors[i].device >= host->words.pool->count) abort();
    }
}

/* A copy of its own, so that reading past the end is noticed. */
static int32_t scan(host_t *host, const uint8_t *data, int64_t size, int64_t *used) {
    uint8_t *copy = malloc(size ? (size_t)size : 1);
    if (size) memcpy(copy, data, (size_t)size);
    int32_t status = host_scan(host, copy, size, used);
    if (*used < 0 || *used > size) abort();
    check(host, size);
    free(copy);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    int32_t flat = data[0] & 1;
    int64_t length = (int64_t)size - 1, cut = length * (data[0] >> 1) / 128, used, used_first, used_rest;
    host_t *whole = host_new(1, flat), *parts = host_new(1, flat);
    int32_t status = scan(whole, data + 1, length, &used);
    int64_t nodes = whole->nodes.size;
    int32_t first = scan(parts, data + 1, cut, &used_first);
    int64_t found = parts->nodes.size;
    if (first == JSON_CUT) {
        int32_t rest = scan(parts, data + 1 + used_first, length - used_first, &used_rest);
        if (rest != status || used_first + used_rest != used) abort();
        if (found + parts->nodes.size != nodes) abort();
    } else if (first != status) {
        abort();
    }
    host_free(whole);
    host_free(parts);
    return 0;
}
