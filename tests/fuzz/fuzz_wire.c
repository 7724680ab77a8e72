/* Coverage-guided fuzzing of the wire scanner and writer with libFuzzer:
 *
 *   clang -g -O1 -std=c11 -fsanitize=fuzzer,address,undefined -Inative \
 *       native/wire/*.c tests/fuzz/fuzz_wire.c -o fuzz_wire
 *   ./fuzz_wire -max_total_time=600 -rss_limit_mb=512 CORPUS_FOLDER
 *
 * Without clang, `make sanitize` runs it with the driver beside this file (driver.c).
 *
 * Beyond memory errors it checks that both passes agree, and that what was read is written with
 * the size that was measured and counts the same when read again.
 */
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

typedef struct {
    const uint8_t *bytes;
    const int64_t *ptr;
} texts_t;

pool_t *wire_pool_new(uint64_t seed);
void wire_pool_free(pool_t *pool);
int64_t wire_pool_size(const pool_t *pool);
void wire_pool_spans(const pool_t *pool, int64_t *offset, int64_t *length);
int32_t wire_count(const uint8_t *data, int64_t start, int64_t size, totals_t *totals, fault_t *fault);
int32_t wire_read(const uint8_t *data, int64_t start, int64_t size, const columns_t *out, pool_t *strings,
    pool_t *blobs, fault_t *fault);
int64_t wire_measure(int64_t nodes, const columns_t *in, const texts_t *strings, const texts_t *blobs);
int64_t wire_write(
    int64_t nodes, const columns_t *in, const texts_t *strings, const texts_t *blobs, uint8_t *out);

static void check(int condition) {
    if (!condition) abort();
}

/* Allocates exactly, so that the sanitizer sees every step past the end, nothing included: it gives
 * one byte where none is asked for. */
static void *room(int64_t count, size_t size) {
    size_t bytes = (size_t)count * size;
    void *memory = malloc(bytes ? bytes : 1);
    check(memory != NULL);
    if (!bytes) ASAN_POISON_MEMORY_REGION(memory, 1);
    return memory;
}

static void allocate(columns_t *c, const totals_t *n) {
    c->id = room(n->nodes, sizeof *c->id);
    c->name = room(n->nodes, sizeof *c->name);
    c->type = room(n->nodes, sizeof *c->type);
    c->start_us = room(n->nodes, sizeof *c->start_us);
    c->duration_us = room(n->nodes, sizeof *c->duration_us);
    c->data_ptr = room(n->nodes + 1, sizeof *c->data_ptr);
    c->data_deps = room(n->data_deps, sizeof *c->data_deps);
    c->ctrl_ptr = room(n->nodes + 1, sizeof *c->ctrl_ptr);
    c->ctrl_deps = room(n->ctrl_deps, sizeof *c->ctrl_deps);
    c->io = room(6 * n->nodes, sizeof *c->io);
    c->attr_ptr = room(n->nodes + 1, sizeof *c->attr_ptr);
    c->attr_name = room(n->attributes, sizeof *c->attr_name);
    c->attr_wire = room(n->attributes, sizeof *c->attr_wire);
    c->attr_word = room(n->attributes, sizeof *c->attr_word);
    c->attr_doc = room(n->attributes, sizeof *c->attr_doc);
}

static void release(columns_t *c) {
    void *all[] = {c->id, c->name, c->type, c->start_us, c->duration_us, c->data_ptr, c->data_deps,
        c->ctrl_ptr, c->ctrl_deps, c->io, c->attr_ptr, c->attr_name, c->attr_wire, c->attr_word, c->attr_doc};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The strings of a pool end to end, as Python hands them to the writer. */
static texts_t joined(const pool_t *pool, const uint8_t *data) {
    int64_t count = wire_pool_size(pool), total = 0;
    int64_t *offset = room(count, sizeof *offset), *length = room(count, sizeof *length);
    int64_t *ptr = room(count + 1, sizeof *ptr);
    wire_pool_spans(pool, offset, length);
    for (int64_t i = 0; i < count; i++) {
        ptr[i] = total;
        total += length[i];
    }
    ptr[count] = total;
    uint8_t *bytes = room(total, 1);
    for (int64_t i = 0; i < count; i++) memcpy(bytes + ptr[i], data + offset[i], (size_t)length[i]);
    free(offset);
    free(length);
    return (texts_t){bytes, ptr};
}

static void check_written(
    const columns_t *columns, const totals_t *n, const texts_t *strings, const texts_t *blobs) {
    int64_t size = wire_measure(n->nodes, columns, strings, blobs);
    check(size >= 0);
    uint8_t *out = room(size, 1);
    check(wire_write(n->nodes, columns, strings, blobs, out) == size);
    totals_t again;
    fault_t fault;
    check(wire_count(out, 0, size, &again, &fault) == OK);
    check(again.nodes == n->nodes && again.data_deps == n->data_deps);
    check(again.ctrl_deps == n->ctrl_deps && again.attributes == n->attributes);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    totals_t n;
    fault_t fault = {0};
    if (wire_count(data, 0, (int64_t)size, &n, &fault)) return 0;
    columns_t columns;
    allocate(&columns, &n);
    pool_t *strings = wire_pool_new(1), *blobs = wire_pool_new(2);
    check(wire_read(data, 0, (int64_t)size, &columns, strings, blobs, &fault) == OK);
    check(columns.data_ptr[n.nodes] == n.data_deps);
    check(columns.ctrl_ptr[n.nodes] == n.ctrl_deps);
    check(columns.attr_ptr[n.nodes] == n.attributes);
    texts_t string_texts = joined(strings, data), blob_texts = joined(blobs, data);
    check_written(&columns, &n, &string_texts, &blob_texts);
    free((void *)string_texts.bytes);
    free((void *)string_texts.ptr);
    free((void *)blob_texts.bytes);
    free((void *)blob_texts.ptr);
    wire_pool_free(strings);
    wire_pool_free(blobs);
    release(&columns);
    return 0;
}
