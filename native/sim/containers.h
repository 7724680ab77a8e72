/* The containers of the simulator: one binary heap and one FIFO, for any type of entry. */
#ifndef LAYERDAG_CONTAINERS_H
#define LAYERDAG_CONTAINERS_H

#include <stdint.h>

/* Define NAME_push and NAME_pop of a heap with the smallest Entry at heap[0]; `before(x, y)` takes two
 * pointers. The array must have room for what is pushed, and hold something when it is popped. */
#define DEFINE_HEAP(name, Entry, before)                                                                     \
    static void name##_push(Entry *heap, int64_t *used, Entry entry) {                                       \
        int64_t at = (*used)++;                                                                              \
        for (int64_t up; at > 0; at = up) {                                                                  \
            up = (at - 1) / 2;                                                                               \
            if (!before(&entry, &heap[up])) break;                                                           \
            heap[at] = heap[up];                                                                             \
        }                                                                                                    \
        heap[at] = entry;                                                                                    \
    }                                                                                                        \
    static Entry name##_pop(Entry *heap, int64_t *used) {                                                    \
        Entry first = heap[0], last = heap[--*used];                                                         \
        int64_t at = 0;                                                                                      \
        for (int64_t down = 1; down < *used; down = 2 * at + 1) {                                            \
            if (down + 1 < *used && before(&heap[down + 1], &heap[down])) down++;                            \
            if (!before(&heap[down], &last)) break;                                                          \
            heap[at] = heap[down];                                                                           \
            at = down;                                                                                       \
        }                                                                                                    \
        heap[at] = last;                                                                                     \
        return first;                                                                                        \
    }

/* Append the entry `index` of a pool of Entry to a FIFO: a struct with head (-1: empty) and tail, whose
 * entries are chained through `next`. The FIFO must not lie in that pool. */
#define FIFO_APPEND(s, Entry, pool, fifo, index)                                                             \
    do {                                                                                                     \
        POOL(s, Entry, pool, index).next = -1;                                                               \
        if ((fifo)->head < 0)                                                                                \
            (fifo)->head = (index);                                                                          \
        else                                                                                                 \
            POOL(s, Entry, pool, (fifo)->tail).next = (index);                                               \
        (fifo)->tail = (index);                                                                              \
    } while (0)

#endif
