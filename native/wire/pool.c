/* Distinct byte strings of a file, found through a hash table with open addressing. */
#include <stdlib.h>
#include <string.h>

#include "wire.h"

EXPORT void wire_pool_free(pool_t *pool) {
    if (!pool) return;
    free(pool->slots);
    free(pool->spans);
    free(pool);
}

/* The seed keeps a hostile file from choosing its collisions. */
EXPORT pool_t *wire_pool_new(uint64_t seed) {
    pool_t *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->mask = 255;
    pool->capacity = 128;
    pool->seed = seed;
    pool->slots = calloc(pool->mask + 1, sizeof *pool->slots);
    pool->spans = malloc((size_t)pool->capacity * sizeof *pool->spans);
    if (!pool->slots || !pool->spans) {
        wire_pool_free(pool);
        return NULL;
    }
    return pool;
}

EXPORT int64_t wire_pool_size(const pool_t *pool) { return pool->count; }

EXPORT void wire_pool_spans(const pool_t *pool, int64_t *offset, int64_t *length) {
    for (int64_t i = 0; i < pool->count; i++) {
        offset[i] = pool->spans[i].offset;
        length[i] = pool->spans[i].length;
    }
}

static uint32_t hash_bytes(const uint8_t *text, size_t length, uint64_t seed) {
    uint64_t hash = seed ^ (length * UINT64_C(0x9E3779B97F4A7C15));
    while (length) {
        uint64_t word = 0;
        size_t step = length < 8 ? length : 8;
        memcpy(&word, text, step);
        hash = (hash ^ word) * UINT64_C(0xBF58476D1CE4E5B9);
        hash ^= hash >> 29;
        text += step;
        length -= step;
    }
    hash *= UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(hash >> 32);
}

static int pool_grow(pool_t *pool) {
    int64_t capacity = pool->capacity * 2;
    uint64_t mask = pool->mask * 2 + 1;
    span_t *spans = realloc(pool->spans, (size_t)capacity * sizeof *spans);
    if (!spans) return NO_MEMORY;
    pool->spans = spans;
    uint32_t *slots = calloc(mask + 1, sizeof *slots);
    if (!slots) return NO_MEMORY;
    for (int64_t i = 0; i < pool->count; i++) {
        uint64_t slot = spans[i].hash & mask;
        while (slots[slot]) slot = (slot + 1) & mask;
        slots[slot] = (uint32_t)i + 1;
    }
    free(pool->slots);
    pool->slots = slots;
    pool->mask = mask;
    pool->capacity = capacity;
    return OK;
}

int wire_pool_add(pool_t *pool, const uint8_t *base, const uint8_t *text, size_t length, int64_t *index) {
    uint32_t hash = hash_bytes(text, length, pool->seed);
    uint64_t slot = hash & pool->mask;
    for (; pool->slots[slot]; slot = (slot + 1) & pool->mask) {
        const span_t *span = &pool->spans[pool->slots[slot] - 1];
        if (span->hash == hash && span->length == length && memcmp(base + span->offset, text, length) == 0) {
            *index = pool->slots[slot] - 1;
            return OK;
        }
    }
    if (pool->count >= INT32_MAX) return TOO_MANY;
    if (pool->count == pool->capacity) {
        int status = pool_grow(pool);
        if (status) return status;
        for (slot = hash & pool->mask; pool->slots[slot]; slot = (slot + 1) & pool->mask) {
        }
    }
    pool->spans[pool->count] = (span_t){text - base, (uint32_t)length, hash};
    pool->slots[slot] = (uint32_t)++pool->count;
    *index = pool->count - 1;
    return OK;
}
