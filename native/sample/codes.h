/* Codes of candidate parents, kept in step with layout.py. */
#ifndef LAYERDAG_CODES_H
#define LAYERDAG_CODES_H

#include <stdint.h>

enum { NEVER = -1 };

enum { STUB_CODES = 16, OFFSET_CODES = 10, GAP_CODES = 10, TOKEN_CODES = 46, BLOCK_CODES = 10 };

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t log_code(int64_t count) {
    static const uint8_t codes[33] = {
        0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    return count > 32 ? GAP_CODES - 1 : codes[most(count, 0)];
}

/* Of children so far and predicted ones. */
static inline int64_t stub_code(int64_t used, int64_t out_degree) {
    return least(used, 3) * 4 + least(most(out_degree - used, 0), 3);
}

/* Of a candidate's distance to the reference of the decision. */
static inline int64_t offset_code(int64_t candidate, int64_t reference) {
    return reference == NEVER ? OFFSET_CODES - 1 : most(least(candidate - reference, 4), -4) + 4;
}

/* Of the tokens between a candidate's last child and the next one. */
static inline int64_t gap_code(int64_t child, int64_t last) {
    return last == NEVER ? 0 : log_code(child - last);
}

#endif
